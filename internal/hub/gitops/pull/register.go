package pull

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/capstan-io/capstan/api/apps/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/hub/optionalkind"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

const (
	workers = 5
	// indexApplication finds the works of an Application.
	indexApplication = "work.application"
	// eventDelay is how long events about many clusters are collected, and those for a report.
	eventDelay = debounce.Delay / 4
)

// Register adds the controllers to the manager. They start when the hub has the kind Application.
func Register(mgr ctrl.Manager, o Options) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &workv1.ManifestWork{}, indexApplication, ofWork); err != nil {
		return fmt.Errorf("index ManifestWorks by %s: %w", indexApplication, err)
	}
	live, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("make the client for Applications: %w", err)
	}
	apps, err := optionalkind.Add(mgr, optionalkind.Options{CRD: crdName, GroupKind: applicationKind.GroupKind(),
		Versions: []string{applicationKind.Version},
		Objects:  cache.ByObject{Label: labels.SelectorFromSet(labels.Set{fleet.LabelArgoPull: fleet.LabelTrue})}})
	if err != nil {
		return err
	}
	clients := Clients{Client: mgr.GetClient(), Applications: apps.Reader, Live: live}
	if err := New(clients, mgr.GetEventRecorder("application-pull-controller"), o).register(mgr, apps); err != nil {
		return err
	}
	return (&Reporter{clients}).register(mgr, apps)
}

func (c *Controller) register(mgr ctrl.Manager, apps *optionalkind.Kind) error {
	all := debounce.ByName(eventDelay, c.applicationsFor)
	return ctrl.NewControllerManagedBy(mgr).Named("addon-application-pull").
		WatchesRawSource(apps.Events(&handler.EnqueueRequestForObject{}, c.ofWorks)).
		Watches(&workv1.ManifestWork{}, handler.EnqueueRequestsFromMapFunc(c.ofWork),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: workChanged})).
		Watches(&clusterv1.ManagedCluster{}, all, builder.WithPredicates(predicate.Or(
			predicate.Predicate(predicate.LabelChangedPredicate{}), selected.ClusterChanged()))).
		Watches(&clusterv1beta2.ManagedClusterSet{}, all, builder.WithPredicates(predicates.Generation())).
		Watches(&clusterv1beta2.ManagedClusterSetBinding{}, all).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

func (r *Reporter) register(mgr ctrl.Manager, apps *optionalkind.Kind) error {
	itself := func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("addon-applicationset-report").
		WatchesRawSource(apps.Events(debounce.ByName(eventDelay, ofSet), r.reports)).
		Watches(&workv1.ManifestWork{}, debounce.ByName(eventDelay, reportedBy),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: workChanged})).
		Watches(&appsv1alpha1.MulticlusterApplicationSetReport{}, debounce.ByName(eventDelay, itself)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(r))
}

// ofWork is the index of works by their Applications.
func ofWork(o client.Object) []string {
	if app := applicationOf(o); app.Name != "" {
		return []string{app.String()}
	}
	return nil
}

// ofWork is the Application of a work.
func (c *Controller) ofWork(_ context.Context, work client.Object) []reconcile.Request {
	if app := applicationOf(work); app.Name != "" {
		return []reconcile.Request{{NamespacedName: app}}
	}
	return nil
}

// ofWorks are the Applications of all works, also of those that were deleted while none were watched.
func (c *Controller) ofWorks(ctx context.Context) (requests []reconcile.Request) {
	works := &workv1.ManifestWorkList{}
	if err := c.c.List(ctx, works, client.MatchingLabels{fleet.LabelArgoPull: fleet.LabelTrue}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the ManifestWorks of Applications")
	}
	for i := range works.Items {
		requests = append(requests, c.ofWork(ctx, &works.Items[i])...)
	}
	return requests
}

// applicationsFor are all Applications, or those for a cluster, if the object is one.
func (c *Controller) applicationsFor(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	apps := c.c.Applications()
	if apps == nil {
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(listKind)
	if err := apps.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the Applications of a cluster")
	}
	_, one := o.(*clusterv1.ManagedCluster)
	for i := range list.Items {
		if cluster, ok := pulled(&list.Items[i]); ok && (!one || cluster == o.GetName()) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// ofSet is the ApplicationSet of an Application.
func ofSet(_ context.Context, app client.Object) []reconcile.Request {
	if set := setOf(app); set.Name != "" {
		return []reconcile.Request{{NamespacedName: set}}
	}
	return nil
}

// reportedBy is the ApplicationSet of the Application of a work.
func reportedBy(_ context.Context, work client.Object) []reconcile.Request {
	namespace, name, ok := strings.Cut(work.GetAnnotations()[fleet.AnnotationArgoSet], "/")
	if !ok || applicationOf(work).Name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// reports are those that the hub has written.
func (r *Reporter) reports(ctx context.Context) (requests []reconcile.Request) {
	list := &appsv1alpha1.MulticlusterApplicationSetReportList{}
	if err := r.c.List(ctx, list, client.MatchingLabels{fleet.LabelArgoSet: fleet.LabelTrue}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the reports of ApplicationSets")
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// workChanged reports whether a change of a work is one of what it brings, of what its cluster reports, or of whose it is.
func workChanged(e event.UpdateEvent) bool {
	newWork, newOK := e.ObjectNew.(*workv1.ManifestWork)
	oldWork, oldOK := e.ObjectOld.(*workv1.ManifestWork)
	if !newOK || !oldOK || applicationOf(newWork).Name == "" && applicationOf(oldWork).Name == "" {
		return false
	}
	return newWork.Generation != oldWork.Generation || !equality.Semantic.DeepEqual(newWork.Labels, oldWork.Labels) ||
		!equality.Semantic.DeepEqual(newWork.Annotations, oldWork.Annotations) ||
		newWork.DeletionTimestamp.IsZero() != oldWork.DeletionTimestamp.IsZero() || failureOf(newWork) != failureOf(oldWork) ||
		!equality.Semantic.DeepEqual(valuesOf(newWork), valuesOf(oldWork))
}
