package resources

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
)

// addOns are the ManagedClusterAddOns in the namespaces of clusters, in one version of their API.
type addOns struct{ source }

func newAddOns(o Options) *addOns {
	return &addOns{source{Options: o, dataType: cloudevents.AddOnsOfBetaAPI, kind: addonv1beta1.GroupVersion.WithKind("ManagedClusterAddOn"),
		empty:     func() client.Object { return &addonv1beta1.ManagedClusterAddOn{} },
		list:      func() client.ObjectList { return &addonv1beta1.ManagedClusterAddOnList{} },
		clusterOf: namespaceOf, ofCluster: inNamespace, encode: asItIs(cloudevents.AddOnsOfBetaAPI), version: resource.Version}}
}

func newAddOnsOfAlphaAPI(o Options) *addOns {
	return &addOns{source{Options: o, dataType: cloudevents.AddOns, kind: addonv1alpha1.GroupVersion.WithKind("ManagedClusterAddOn"),
		empty:     func() client.Object { return &addonv1alpha1.ManagedClusterAddOn{} },
		list:      func() client.ObjectList { return &addonv1alpha1.ManagedClusterAddOnList{} },
		clusterOf: namespaceOf, ofCluster: inNamespace, encode: asItIs(cloudevents.AddOns), version: resource.Version}}
}

// Prepare implements broker.Service.
func (a *addOns) Prepare(event *cloudevents.Event, eventType cloudevents.Type, cluster string) (*broker.Write, error) {
	if eventType.SubResource != cloudevents.Status || eventType.Action != cloudevents.Update {
		return nil, unsupported(eventType, "update the status of ManagedClusterAddOns")
	}
	sent := &unstructured.Unstructured{}
	if err := event.ReadData(&sent.Object); err != nil {
		return nil, unreadable(err)
	}
	if kind := sent.GroupVersionKind(); !kind.Empty() && kind != a.kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("event %s of type %s has a %s, want a %s", event.ID, event.Type, kind, a.kind))
	}
	if err := check(a.dataType, cluster, sent.GetNamespace(), sent.GetName()); err != nil {
		return nil, err
	}
	return &broker.Write{Subresource: "status", Name: sent.GetName(),
		Do: func(ctx context.Context, _ *access.Caller) error { return a.updateStatus(ctx, sent) }}, nil
}

// updateStatus writes what an agent says of an add-on: the conditions, and by which driver it registers the add-on. The rest of the status
// is for the manager of the add-on: it decides as whom the add-on acts on the hub.
func (a *addOns) updateStatus(ctx context.Context, sent *unstructured.Unstructured) error {
	addOn := &unstructured.Unstructured{}
	addOn.SetGroupVersionKind(a.kind)
	if err := a.Reader.Get(ctx, client.ObjectKeyFromObject(sent), addOn); err != nil {
		return err
	}
	if err := checkVersion(a.dataType, addOn, sent); err != nil {
		return err
	}
	before := addOn.DeepCopy()
	conditions, _, err := unstructured.NestedSlice(sent.Object, "status", "conditions")
	if err != nil {
		return unreadable(err)
	}
	if err := unstructured.SetNestedSlice(addOn.Object, conditions, "status", "conditions"); err != nil {
		return unreadable(err)
	}
	if err := a.setDriver(addOn, sent); err != nil {
		return unreadable(err)
	}
	return a.Client.Status().Patch(ctx, addOn, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// setDriver takes over by which driver the agent gets the credentials of the add-on.
func (a *addOns) setDriver(addOn, sent *unstructured.Unstructured) error {
	if a.dataType == cloudevents.AddOns {
		driver, found, err := unstructured.NestedString(sent.Object, "status", "kubeClientDriver")
		if err != nil || !found {
			return err
		}
		return unstructured.SetNestedField(addOn.Object, driver, "status", "kubeClientDriver")
	}
	registrations, found, err := unstructured.NestedSlice(addOn.Object, "status", "registrations")
	if err != nil || !found {
		return err
	}
	reported, _, err := unstructured.NestedSlice(sent.Object, "status", "registrations")
	if err != nil {
		return err
	}
	for i := range min(len(reported), len(registrations)) {
		registration, ok := registrations[i].(map[string]any)
		of, too := reported[i].(map[string]any)
		if !ok || !too || registration["type"] != of["type"] {
			continue
		}
		driver, found, err := unstructured.NestedString(of, "kubeClient", "driver")
		if _, has := registration["kubeClient"].(map[string]any); err != nil || !found || !has {
			continue
		}
		if err := unstructured.SetNestedField(registration, driver, "kubeClient", "driver"); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(addOn.Object, registrations, "status", "registrations")
}
