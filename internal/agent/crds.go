package agent

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/program"
)

// installCRDs gives the managed cluster the kinds that the agent keeps there. Where an operator has installed them,
// the agent need not have the right to. It waits for a cluster that does not answer, and fails if one refuses.
func (a *Agent) installCRDs(ctx context.Context) error {
	managed, err := a.definitions()
	if err != nil {
		return err
	}
	for backoff := restartBackoff(); ; {
		err := installCRDs(ctx, managed, a.crds())
		if err == nil || refused(err) {
			return err
		}
		delay := backoff.Step()
		log.FromContext(ctx).Error(err, "The managed cluster could not be prepared; that is tried again", "cluster", a.managed.Host, "after",
			delay.String())
		if !a.sleep(ctx, delay) {
			return ctx.Err()
		}
	}
}

// definitions is a client for the CustomResourceDefinitions of the managed cluster.
func (a *Agent) definitions() (client.WithWatch, error) {
	managed, err := apply.NewCRDClient(a.managed)
	if err != nil {
		return nil, fmt.Errorf("connect to the managed cluster %s: %w", a.managed.Host, err)
	}
	return managed, nil
}

// refused reports whether the API server answered with an error that a retry would meet again.
func refused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// crds are the kinds that the agent needs in the managed cluster.
func (a *Agent) crds() []*apiextensionsv1.CustomResourceDefinition {
	if a.parts.Registration && a.FeatureGates.Enabled(featuregates.ClusterProperty) {
		return append(crds.ManagedCluster(), crds.ClusterProperties()...)
	}
	return crds.ManagedCluster()
}

func installCRDs(ctx context.Context, managed client.WithWatch, desired []*apiextensionsv1.CustomResourceDefinition) error {
	var installed []string
	for _, want := range desired {
		err := apply.InstallCRD(ctx, managed, want, program.Version())
		if errors.Is(err, apply.ErrCRDsForbidden) {
			log.FromContext(ctx).Info("A CustomResourceDefinition is taken to be installed: the agent may not look at it", "name", want.Name)
			continue
		}
		if err != nil {
			return fmt.Errorf("install CustomResourceDefinition %s in the managed cluster: %w", want.Name, err)
		}
		installed = append(installed, want.Name)
	}
	for _, name := range installed {
		if err := awaitEstablished(ctx, managed, name); err != nil {
			return fmt.Errorf("wait for CustomResourceDefinition %s of the managed cluster: %w", name, err)
		}
	}
	return nil
}

// keepCRDs installs the kinds again when they have been removed from the managed cluster: no work could be applied any more.
func (a *Agent) keepCRDs(ctx context.Context) error {
	managed, err := a.definitions()
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, crd := range a.crds() {
		all.Go(func() error { return a.keepCRD(ctx, managed, crd) })
	}
	return all.Wait()
}

// keepCRD gives up on a kind that the agent has no right to install. After other failures it tries again.
func (a *Agent) keepCRD(ctx context.Context, managed client.WithWatch, want *apiextensionsv1.CustomResourceDefinition) error {
	logger := log.FromContext(ctx).WithValues("name", want.Name)
	backoff := restartBackoff()
	for {
		_, err := watchCRD(ctx, managed, want.Name, func(*apiextensionsv1.CustomResourceDefinition) bool { return false })
		if apierrors.IsNotFound(err) {
			if err = apply.InstallCRD(ctx, managed, want.DeepCopy(), program.Version()); err == nil {
				logger.Info("A CustomResourceDefinition was removed from the managed cluster and is installed again; all objects of its kind are gone")
			}
		}
		if err == nil {
			backoff = restartBackoff()
		}
		delay := backoff.Step()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // what failed did so because the context ended
		case apierrors.IsForbidden(err), errors.Is(err, apply.ErrCRDsForbidden):
			logger.Info("A CustomResourceDefinition is not looked after: the agent has no right to", "reason", err.Error())
			return nil
		case err != nil:
			logger.Error(err, "A CustomResourceDefinition could not be looked after; that is tried again", "after", delay.String())
		}
		if !a.sleep(ctx, delay) {
			return nil
		}
	}
}

// awaitEstablished watches a CustomResourceDefinition until it is served. It fails if there is none, or none any more.
func awaitEstablished(ctx context.Context, managed client.WithWatch, name string) error {
	established := func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	}
	for ctx.Err() == nil {
		if done, err := watchCRD(ctx, managed, name, established); done || err != nil {
			return err
		}
	}
	return ctx.Err()
}

// watchCRD reports false when the watch ended.
func watchCRD(ctx context.Context, managed client.WithWatch, name string,
	condition func(*apiextensionsv1.CustomResourceDefinition) bool) (bool, error) {
	selector := fields.OneTermEqualSelector("metadata.name", name)
	w, err := managed.Watch(ctx, &apiextensionsv1.CustomResourceDefinitionList{}, &client.ListOptions{FieldSelector: selector})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	// A watch is silent about what was removed before it started.
	now := &apiextensionsv1.CustomResourceDefinition{}
	if err := managed.Get(ctx, client.ObjectKey{Name: name}, now); err != nil {
		return false, err
	}
	if condition(now) {
		return true, nil
	}
	for event := range w.ResultChan() {
		crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
		switch {
		case ok && event.Type == watch.Deleted:
			return false, apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), name)
		case ok && condition(crd):
			return true, nil
		}
	}
	return false, nil
}
