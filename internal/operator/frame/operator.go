// Package frame is what the operators have alike: how they start, watch and reconcile, what they read besides their custom resources, and
// how they report. What there should be, and the conditions that say so, are those of each operator.
package frame

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/repairclient"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/rights"
)

// Options are those that the operators have alike.
type Options struct {
	// Namespace is that of the operator.
	Namespace string
	// Image is that of components for which nobody has chosen one.
	Image string
	// Version is that of the operator.
	Version string
	// Replicas is the number of replicas of each component that is not hosted; 0 chooses by the number of nodes.
	Replicas int32
	// Nodes selects the nodes that count for the number of replicas; nil counts all that pods can run on.
	Nodes labels.Selector
	// PullSecret is the name of the Secret in Namespace to pull images with, which is copied to where components run if it exists.
	PullSecret string
	// SyncLabels copies the labels of a custom resource to what it consists of.
	SyncLabels bool
	// Clock is the source of time; nil means the system clock.
	Clock clock.Clock
}

// Kind describes the custom resources of an operator, and what they consist of.
type Kind struct {
	schema.GroupVersionKind
	// Label and FieldManager are those of [apply.Options].
	Label, FieldManager string
	// Elsewhere are the kinds of the objects on the cluster that a custom resource is about, in the order in which they are deleted, and
	// OnlyElsewhere those that there are only if that is not the cluster of the operator.
	Elsewhere, OnlyElsewhere []schema.GroupVersionKind
	// Optional are those that an installation works without, besides those that every installation does.
	Optional []schema.GroupVersionKind
	// Watches are those of the cache of the manager, besides those of [Watches].
	Watches []rights.Watch
	// Namespaces are those in which a custom resource depends on Secrets and ConfigMaps, besides that of the operator.
	Namespaces func(client.Object) []string
	// Shared is called when an object changes that is part of no single custom resource.
	Shared func()
}

// Operator is what is at the disposal of the controllers of an operator.
type Operator struct {
	Options
	// Client reads from the cache of the manager.
	Client client.Client
	// Management is the cluster of the operator, Elsewhere are those of hosted custom resources, and Access is how the first is reached.
	Management *apply.Cluster
	Elsewhere  *remote.Clusters
	Access     *rest.Config
	Secrets    *Secrets
	// Changed enqueues custom resources.
	Changed *Source

	kind schema.GroupVersionKind
	// label and namespaces are those of [Kind].
	label      string
	namespaces func(client.Object) []string
	// missing are the watches that are not permitted.
	missing  []rights.Watch
	recorder events.EventRecorder
}

// everywhereOptional are the kinds that every installation works without.
var everywhereOptional = []schema.GroupVersionKind{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")}

// ManagementKinds are those of the objects on the cluster of the operator, which has those that there are elsewhere, too.
func ManagementKinds(elsewhere []schema.GroupVersionKind) []schema.GroupVersionKind {
	return slices.Concat([]schema.GroupVersionKind{apply.Deployments}, everywhereOptional, []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("ConfigMap")}, elsewhere)
}

// Scheme has the types of all that the operators read and write, with those that are added.
func Scheme(more ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range append(more, operatorv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme, apiextensionsv1.AddToScheme) {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// ManagerOptions are those of the manager of an operator in that namespace: its cache has what the controllers read, and no more. Reads see
// what the operator itself has written. label is that of [Kind], which pods of components have, too. report is the name of ConfigMaps that
// the cache has of all other namespaces; empty if there are none.
func ManagerOptions(namespace string, scheme *runtime.Scheme, label, report string) ctrl.Options {
	installed, err := labels.NewRequirement(label, selection.Exists, nil)
	utilruntime.Must(err)
	named := func(name string) cache.Config {
		return cache.Config{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
	}
	configMaps := map[string]cache.Config{namespace: named(fleet.ConfigMapTLSProfile)}
	if report != "" {
		configMaps[cache.AllNamespaces] = named(report)
	}
	return ctrl.Options{
		Scheme:    scheme,
		NewClient: repairclient.NewClient,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Namespaces: configMaps},
				&corev1.Node{}:      {Transform: stripNode},
				&corev1.Pod{}:       {Label: labels.NewSelector().Add(*installed), Transform: stripPod},
			},
		},
	}
}

// Watches are those of the cache of the manager of each operator in that namespace.
func Watches(namespace string) []rights.Watch {
	return []rights.Watch{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: namespace, Name: fleet.ConfigMapTLSProfile},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod")},
	}
}

// New prepares an operator for custom resources of the kind, as part of the manager. The context is that of the operator.
func New(ctx context.Context, mgr ctrl.Manager, options Options, kind Kind) (*Operator, error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	reviews, err := authorizationv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	reviewer := reviews.SelfSubjectAccessReviews()
	own := rights.Watch{GroupVersionKind: kind.GroupVersionKind}
	missing, err := rights.Missing(ctx, reviewer, slices.Concat([]rights.Watch{own}, Watches(options.Namespace), kind.Watches)...)
	if err != nil {
		return nil, err
	}
	if slices.Contains(missing, own) { // there is nothing to report it on; installers may give the rights later
		mgr.GetLogger().Info("The operator waits until it may watch "+kind.Kind+"s", "rules", rights.Rules(missing))
	}
	if err := mgr.Add(rights.Recheck{Reviewer: reviewer, Watches: missing}); err != nil {
		return nil, err
	}
	o := &Operator{Options: options, Client: rights.WithoutWatches(mgr.GetClient(), mgr.GetAPIReader(), missing), Access: mgr.GetConfig(),
		Changed: &Source{}, kind: kind.GroupVersionKind, label: kind.Label, namespaces: kind.Namespaces, missing: missing,
		recorder: mgr.GetEventRecorder(kind.FieldManager)}
	o.Secrets = NewSecrets(ctx, core, reviewer, func(name types.NamespacedName) {
		o.add(ctx, o.dependsOn(name.Namespace))
		if name.Namespace == o.Namespace {
			kind.Shared()
		}
	})
	return o, o.connect(ctx, mgr, kind)
}

// connect prepares the clusters.
func (o *Operator) connect(ctx context.Context, mgr ctrl.Manager, kind Kind) (err error) {
	options := apply.Options{Label: kind.Label, FieldManager: kind.FieldManager, Kinds: ManagementKinds(kind.Elsewhere),
		Optional: slices.Concat(everywhereOptional, kind.Optional), Scheme: mgr.GetScheme(), Version: o.Version,
		Changed: func(installation string) {
			if installation != "" {
				o.Changed.Add(installation)
				return
			}
			o.add(ctx, every)
			kind.Shared()
		}}
	if o.Management, err = apply.NewCluster(mgr.GetConfig(), options); err != nil {
		return err
	}
	options.Kinds = slices.Concat(kind.Elsewhere, kind.OnlyElsewhere)
	o.Elsewhere = remote.New(ctx, options)
	return mgr.Add(o.Management)
}

// Controller returns a builder of the controller of the custom resources: they are reconciled when they or what they depend on changes.
// atOnce are reconciled at a time.
func (o *Operator) Controller(mgr ctrl.Manager, name string, resource client.Object, atOnce int) *ctrl.Builder {
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return o.those(ctx, every) })
	dependent := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, input client.Object) []reconcile.Request {
		return o.those(ctx, o.dependsOn(input.GetNamespace()))
	})
	operator := ctrl.NewControllerManagedBy(mgr).Named(name).
		For(resource, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{},
			predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		// Others may want the same as it, or no longer.
		Watches(resource, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(o.Changed).
		WithOptions(controller.Options{RateLimiter: retry.Limiter(), MaxConcurrentReconciles: atOnce})
	if o.Watched(corev1.SchemeGroupVersion.WithKind("Node")) {
		operator.Watches(&corev1.Node{}, all, builder.WithPredicates(nodeChanged))
	}
	if o.Watched(corev1.SchemeGroupVersion.WithKind("ConfigMap")) {
		operator.Watches(&corev1.ConfigMap{}, dependent)
	}
	if o.Watched(corev1.SchemeGroupVersion.WithKind("Pod")) {
		operator.Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(o.ofPod))
	}
	return operator
}

// ofPod is the custom resource whose component runs in the pod.
func (o *Operator) ofPod(_ context.Context, pod client.Object) []reconcile.Request {
	return []reconcile.Request{Request(pod.GetLabels()[o.label])}
}

// Watched reports whether the cache of the manager has a kind.
func (o *Operator) Watched(kind schema.GroupVersionKind) bool { return rights.Watched(o.missing, kind) }

// every chooses all custom resources.
func every(client.Object) bool { return true }

// dependsOn chooses the custom resources that depend on the Secrets and ConfigMaps in a namespace: all on those in that of the operator.
func (o *Operator) dependsOn(namespace string) func(client.Object) bool {
	return func(resource client.Object) bool {
		return namespace == o.Namespace || slices.Contains(o.namespaces(resource), namespace)
	}
}

// those are the custom resources that are chosen, of a few.
func (o *Operator) those(ctx context.Context, chosen func(client.Object) bool) (requests []reconcile.Request) {
	empty, err := o.Client.Scheme().New(o.kind.GroupVersion().WithKind(o.kind.Kind + "List"))
	list, isList := empty.(client.ObjectList)
	if err != nil || !isList || o.Client.List(ctx, list) != nil {
		return nil // once the list is known, all of them are reconciled
	}
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if resource, isObject := item.(client.Object); isObject && chosen(resource) {
			requests = append(requests, Request(resource.GetName()))
		}
		return nil
	})
	return requests
}

// add enqueues the custom resources that are chosen.
func (o *Operator) add(ctx context.Context, chosen func(client.Object) bool) {
	if !o.Changed.started() {
		return
	}
	for _, request := range o.those(ctx, chosen) {
		o.Changed.Add(request.Name)
	}
}
