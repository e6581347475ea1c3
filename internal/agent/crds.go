package agent

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/deploy/crds"
)

// errMayNotLook says that the agent has no right to see CustomResourceDefinitions.
var errMayNotLook = errors.New("the agent may not look at CustomResourceDefinitions")

// installCRDs gives the managed cluster the kinds that the agent keeps there (SC-22). Where an operator has installed them
// and the agent may not, that is well too. A cluster that does not answer is waited for; one that refuses is not.
func (a *Agent) installCRDs(ctx context.Context) error {
	managed, err := client.NewWithWatch(a.managed, client.Options{Scheme: managedScheme()})
	if err != nil {
		return fmt.Errorf("connect to the managed cluster %s: %w", a.managed.Host, err)
	}
	for retry := firstRestart; ; retry = min(2*retry, lastRestart) {
		err := installCRDs(ctx, managed)
		if err == nil || refused(err) {
			return err
		}
		log.FromContext(ctx).Error(err, "The managed cluster could not be prepared; that is tried again", "cluster", a.managed.Host, "after", retry.String())
		if err := a.sleep(ctx, retry); err != nil {
			return err
		}
	}
}

// refused tells whether the API server understood, and will say the same again.
func refused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

func installCRDs(ctx context.Context, managed client.WithWatch) error {
	var installed []string
	for _, want := range crds.ManagedCluster() {
		err := ensureCRD(ctx, managed, want)
		if errors.Is(err, errMayNotLook) {
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

func ensureCRD(ctx context.Context, managed client.Client, want *apiextensionsv1.CustomResourceDefinition) error {
	have := &apiextensionsv1.CustomResourceDefinition{}
	err := managed.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsForbidden(err):
		return errMayNotLook
	case apierrors.IsNotFound(err):
		return client.IgnoreAlreadyExists(managed.Create(ctx, want))
	case err != nil:
		return err
	}
	before := have.DeepCopy()
	have.Spec.Versions, have.Spec.Names = want.Spec.Versions, want.Spec.Names
	if equality.Semantic.DeepEqual(before.Spec, have.Spec) {
		return nil
	}
	if err := managed.Patch(ctx, have, client.MergeFrom(before)); err != nil {
		if !apierrors.IsForbidden(err) {
			return err
		}
		log.FromContext(ctx).Info("A CustomResourceDefinition of the managed cluster differs and the agent may not change it", "name", want.Name)
	}
	return nil
}

// awaitEstablished watches the CustomResourceDefinition until the managed cluster serves it.
func awaitEstablished(ctx context.Context, managed client.WithWatch, name string) error {
	selector := fields.OneTermEqualSelector("metadata.name", name)
	for ctx.Err() == nil {
		w, err := managed.Watch(ctx, &apiextensionsv1.CustomResourceDefinitionList{}, &client.ListOptions{FieldSelector: selector})
		if err != nil {
			return err
		}
		for event := range w.ResultChan() {
			if crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition); ok && established(crd) {
				w.Stop()
				return nil
			}
		}
	}
	return ctx.Err()
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
