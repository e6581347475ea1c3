package configuration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/hashes"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// Register adds the controller to the manager, whose cache needs the indexes of package lookup.
func Register(mgr ctrl.Manager, o Options) error {
	config := rest.CopyConfig(mgr.GetConfig())
	config.ContentType, config.AcceptContentTypes = "", ""
	configs, err := dynamic.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("prepare a client for the configurations of add-ons: %w", err)
	}
	served, err := discovery.NewDiscoveryClientForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("prepare a client for what the hub serves: %w", err)
	}
	known := hashes.New(configs, served, o.Clock)
	c := New(mgr.GetClient(), known, mgr.GetEventRecorder("addon-configuration-controller"), o)
	b := ctrl.NewControllerManagedBy(mgr).Named("addon-managedclusteraddon-configure").
		For(&addonv1beta1.ClusterManagementAddOn{}, builder.WithPredicates(lookup.EntryChanged())).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, lookup.Later(lookup.EntryOf), builder.WithPredicates(predicate.Funcs{UpdateFunc: matters})).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, handler.EnqueueRequestsFromMapFunc(lookup.EntryOf), builder.WithPredicates(madeByHand())).
		Watches(&clusterv1beta1.Placement{}, lookup.Later(lookup.OfPlacement(c.client)), builder.WithPredicates(selected.PlacementChanged())).
		Watches(&clusterv1beta1.PlacementDecision{}, lookup.LaterByLabels(lookup.OfDecision(c.client))).
		WatchesRawSource(known.Source()).
		Watches(definitions(), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, definition client.Object) []reconcile.Request {
			known.DefinitionChanged(definition.GetName())
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()})
	return lookup.WatchClusters(b, c.client, o.TrustDecisions).Complete(retry.Conflicts(c))
}

// madeByHand matches new add-ons that users have created: unlike those of the install strategy, they have no announced configurations
// yet. Until they do, their managers deploy them without any.
func madeByHand() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			return !e.IsInInitialList && e.Object.GetAnnotations()[fleet.AnnotationInstalledBy] != fleet.InstalledByStrategy
		},
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// definitions returns the object with which definitions of kinds are watched.
func definitions() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return o
}

// matters reports whether a change of an add-on affects its configuration, its rollout or what is noted of that. Its availability does not:
// in a large fleet it changes all the time.
func matters(e event.UpdateEvent) bool {
	now, ok := e.ObjectNew.(*addonv1beta1.ManagedClusterAddOn)
	then, thenOK := e.ObjectOld.(*addonv1beta1.ManagedClusterAddOn)
	if !ok || !thenOK {
		return true
	}
	for _, kind := range []string{fleet.ConditionProgressing, fleet.ConditionConfigured, fleet.ConditionRegistrationApplied} {
		if !equality.Semantic.DeepEqual(meta.FindStatusCondition(now.Status.Conditions, kind),
			meta.FindStatusCondition(then.Status.Conditions, kind)) {
			return true
		}
	}
	return now.Generation != then.Generation || now.DeletionTimestamp.IsZero() != then.DeletionTimestamp.IsZero() ||
		now.Annotations[fleet.AnnotationRolledOut] != then.Annotations[fleet.AnnotationRolledOut] ||
		!equality.Semantic.DeepEqual(now.Status.ConfigReferences, then.Status.ConfigReferences) ||
		!equality.Semantic.DeepEqual(now.Status.SupportedConfigs, then.Status.SupportedConfigs)
}
