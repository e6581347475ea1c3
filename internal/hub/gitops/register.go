package gitops

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/hub/optionalkind"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/repairclient"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
)

// eventDelay is how long events about many clusters are collected.
const eventDelay = debounce.Delay / 4

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	// The cache of the manager has no Secrets, of which there may be many, with all kinds of content.
	tokens, err := newCache(mgr, labels.Set{fleet.LabelManagedServiceAccount: fleet.LabelTrue})
	if err != nil {
		return err
	}
	clusters, err := newCache(mgr, labels.Set{fleet.LabelArgoSecretType: fleet.ArgoSecretTypeCluster})
	if err != nil {
		return err
	}
	writer, err := repairclient.NewClient(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), Cache: &client.CacheOptions{Reader: clusters},
	})
	if err != nil {
		return fmt.Errorf("make the client for Secrets of clusters: %w", err)
	}
	// The client of the manager would have its cache fetch all ConfigMaps, as soon as one is made.
	live, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("make the client for what is not watched: %w", err)
	}
	apps, err := optionalkind.Add(mgr, optionalkind.Options{CRD: applicationCRD, GroupKind: applicationKind.GroupKind(),
		Versions: []string{applicationKind.Version}, Objects: cache.ByObject{Transform: onlyDestination}})
	if err != nil {
		return err
	}
	c := New(Clients{Client: mgr.GetClient(), Live: live, Tokens: tokens, Secrets: writer, Applications: apps.Reader},
		mgr.GetEventRecorder("gitops-controller"), o)
	all := debounce.ByName(eventDelay, c.find(func(*appsv1beta1.GitOpsCluster, client.Object) bool { return true }))
	return ctrl.NewControllerManagedBy(mgr).Named("addon-gitopscluster-register").
		For(&appsv1beta1.GitOpsCluster{}, builder.WithPredicates(predicate.Or(predicates.Generation(),
			predicate.Predicate(predicate.AnnotationChangedPredicate{})))).
		Watches(&appsv1beta1.GitOpsCluster{}, debounce.ByName(eventDelay, func(ctx context.Context, _ client.Object) []reconcile.Request {
			return c.withAbsences(ctx)
		}), builder.WithPredicates(predicates.Generation())).
		Watches(&clusterv1beta1.Placement{}, debounce.ByName(eventDelay, c.find(refersTo)), builder.WithPredicates(selected.PlacementChanged())).
		Watches(&clusterv1beta1.PlacementDecision{}, debounce.ByLabels(eventDelay, c.ofDecision)).
		Watches(&clusterv1.ManagedCluster{}, all, builder.WithPredicates(clusterChanged())).
		Watches(&clusterv1beta2.ManagedClusterSet{}, all, builder.WithPredicates(predicates.Generation())).
		Watches(&clusterv1beta2.ManagedClusterSetBinding{}, all).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, all, builder.WithPredicates(
			predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == fleet.AddOnClusterProxy }),
			predicate.Or(predicates.Generation(), predicate.Predicate(predicate.AnnotationChangedPredicate{})))).
		WatchesRawSource(source.Channel(o.Access.Address.Changes(), all)).
		WatchesRawSource(secretsOf(tokens, c.find(presents))).
		WatchesRawSource(secretsOf(clusters, c.ofSecret)).
		WatchesRawSource(apps.Events(debounce.ByName(eventDelay, func(ctx context.Context, _ client.Object) []reconcile.Request {
			return c.withAbsences(ctx)
		}), c.withAbsences, applicationMayLeave())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// newCache makes a cache of the Secrets with labels, and has the manager run it.
func newCache(mgr ctrl.Manager, with labels.Set) (cache.Cache, error) {
	made, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: with.AsSelector()}},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of Secrets with %s: %w", with, err)
	}
	return made, mgr.Add(made)
}

// secretsOf is the events of the Secrets in a cache, for what a function maps them to.
func secretsOf(from cache.Cache, of handler.MapFunc) source.Source {
	return source.Kind(from, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
		func(ctx context.Context, secret *corev1.Secret) []reconcile.Request { return of(ctx, secret) }))
}

// clusterChanged matches changes of what the Secret of a cluster says, and of whether there is one.
func clusterChanged() predicate.Predicate {
	return predicate.Or(predicates.Generation(), predicate.Predicate(predicate.LabelChangedPredicate{}), selected.ClusterChanged(),
		accessprovider.RegistrationChanged())
}

// refersTo reports whether a GitOpsCluster names a Placement.
func refersTo(g *appsv1beta1.GitOpsCluster, placement client.Object) bool {
	return g.Namespace == placement.GetNamespace() && g.Spec.PlacementRef != nil && g.Spec.PlacementRef.Name == placement.GetName()
}

// follows reports whether a decision is of the Placement of a GitOpsCluster.
func follows(g *appsv1beta1.GitOpsCluster, decision client.Object) bool {
	return g.Namespace == decision.GetNamespace() && g.Spec.PlacementRef != nil &&
		g.Spec.PlacementRef.Name == decision.GetLabels()[fleet.LabelPlacement]
}

// ofDecision maps a decision to the GitOpsClusters that follow it, and to those with clusters that are no longer selected, which another
// one may have got.
func (c *Controller) ofDecision(ctx context.Context, decision client.Object) []reconcile.Request {
	return append(c.find(follows)(ctx, decision), c.withAbsences(ctx)...)
}

// presents reports whether a GitOpsCluster presents the tokens of accounts of this name.
func presents(g *appsv1beta1.GitOpsCluster, token client.Object) bool {
	return accountOf(g) == token.GetName()
}

// find maps objects to the GitOpsClusters that they concern.
func (c *Controller) find(concerns func(*appsv1beta1.GitOpsCluster, client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (requests []reconcile.Request) {
		list := &appsv1beta1.GitOpsClusterList{}
		if err := c.c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Find the GitOpsClusters that a change concerns")
			return nil
		}
		for i := range list.Items {
			if concerns(&list.Items[i], o) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return requests
	}
}

// ofSecret maps the Secret of a cluster to its GitOpsCluster, even if that has gone, and to all others of the same Argo CD.
func (c *Controller) ofSecret(ctx context.Context, o client.Object) []reconcile.Request {
	requests := c.find(func(g *appsv1beta1.GitOpsCluster, secret client.Object) bool {
		return argoNamespace(g) == secret.GetNamespace()
	})(ctx, o)
	if owner := ownerOf(o); owner != (types.NamespacedName{}) {
		requests = append(requests, reconcile.Request{NamespacedName: owner})
	}
	return requests
}
