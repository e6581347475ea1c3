package agent

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/deploy/crds"
)

// installCRDs gives the managed cluster the kinds that the agent keeps there (SC-22). Where an operator has installed them
// and the agent may not, that is well too.
func (a *Agent) installCRDs(ctx context.Context) error {
	managed, err := client.NewWithWatch(a.managed, client.Options{Scheme: managedScheme()})
	if err != nil {
		return fmt.Errorf("connect to the managed cluster %s: %w", a.managed.Host, err)
	}
	for _, want := range crds.ManagedCluster() {
		if err := ensureCRD(ctx, managed, want); err != nil {
			return fmt.Errorf("install CustomResourceDefinition %s in the managed cluster: %w", want.Name, err)
		}
	}
	for _, want := range crds.ManagedCluster() {
		if err := awaitEstablished(ctx, managed, want.Name); err != nil {
			return fmt.Errorf("wait for CustomResourceDefinition %s of the managed cluster: %w", want.Name, err)
		}
	}
	return nil
}

func ensureCRD(ctx context.Context, managed client.Client, want *apiextensionsv1.CustomResourceDefinition) error {
	have := &apiextensionsv1.CustomResourceDefinition{}
	err := managed.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) {
		return client.IgnoreAlreadyExists(managed.Create(ctx, want))
	}
	if err != nil {
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
