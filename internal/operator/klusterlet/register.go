package klusterlet

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/repairclient"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/crds"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/operator/requeue"
	"github.com/capstan-io/capstan/internal/operator/rights"
	"github.com/capstan-io/capstan/internal/operator/topology"
)

// fieldManager is that of all that is applied.
const fieldManager = "capstan-klusterlet-operator"

// sharedInstallation is the installation of what all Klusterlets of a cluster share.
const sharedInstallation = ""

// atOnce is how many Klusterlets are reconciled at a time: a managed cluster that does not answer must not hold up the others.
const atOnce = 4

// managedKinds are those of the objects on a managed cluster, in the order in which they are deleted.
func managedKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding", "ClusterRole", "Role"} {
		kinds = append(kinds, rbacv1.SchemeGroupVersion.WithKind(kind))
	}
	for _, kind := range []string{"ServiceAccount", "Namespace"} {
		kinds = append(kinds, corev1.SchemeGroupVersion.WithKind(kind))
	}
	return append(kinds, crds.Kind)
}

// managementKinds are those of the objects on the operator's cluster, which is a managed cluster, too.
func managementKinds() []schema.GroupVersionKind {
	return append([]schema.GroupVersionKind{
		apply.Deployments, policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
		corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	}, managedKinds()...)
}

// Scheme has the types of all that the operator reads and writes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{operatorv1.AddToScheme, workv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme,
		rbacv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, discoveryv1.AddToScheme, apiextensionsv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// ManagerOptions are those of a manager for the controllers of an operator in that namespace: its cache has what they read, and no more.
func ManagerOptions(namespace string) ctrl.Options {
	installed, err := labels.NewRequirement(fleet.LabelCreatedByKlusterlet, selection.Exists, nil)
	utilruntime.Must(err)
	return ctrl.Options{
		Scheme:    Scheme(),
		NewClient: repairclient.NewClient,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
					namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, fleet.ConfigMapTLSProfile)}}},
				&corev1.Namespace{}: {Label: labels.SelectorFromSet(labels.Set{fleet.LabelAddOnAgentNamespace: "true"})},
				&corev1.Node{}:      {Transform: topology.StripNode},
				&corev1.Pod{}:       {Label: labels.NewSelector().Add(*installed), Transform: stripPod},
				&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{metav1.NamespaceDefault: {
					LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: "kubernetes"})}}},
			},
		},
	}
}

// stripPod keeps what tells why a pod does not run.
func stripPod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields, pod.Annotations, pod.Spec = nil, nil, corev1.PodSpec{}
	}
	return object, nil
}

// kindKlusterlet is what the operator is for.
var kindKlusterlet = operatorv1.GroupVersion.WithKind("Klusterlet")

// optionalKinds are those that an agent works without.
func optionalKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")}
}

// watches are those of the cache of the manager.
func watches(namespace string) []rights.Watch {
	return []rights.Watch{
		{GroupVersionKind: kindKlusterlet},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: namespace, Name: fleet.ConfigMapTLSProfile},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod")},
		{GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), Namespace: metav1.NamespaceDefault},
	}
}

// Register adds the controllers to the manager. The context is that of the operator.
func Register(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	reviews, err := authorizationv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	reviewer := reviews.SelfSubjectAccessReviews()
	missing, err := rights.Missing(ctx, reviewer, watches(o.Namespace)...)
	if err != nil {
		return err
	}
	if !rights.Watched(missing, kindKlusterlet) { // there is nothing to report it on; installers may give the rights later
		mgr.GetLogger().Info("The operator waits until it may watch Klusterlets", "rules", rights.Rules(missing))
	}
	if err := mgr.Add(rights.Recheck{Reviewer: reviewer, Watches: missing}); err != nil {
		return err
	}
	c := &Controller{Options: o, client: rights.WithoutWatches(mgr.GetClient(), mgr.GetAPIReader(), missing), missing: missing,
		recorder: mgr.GetEventRecorder(fieldManager), access: mgr.GetConfig()}
	changed, copies := &requeue.Source{}, &requeue.Source{}
	enqueue := func(installation string) {
		if installation != sharedInstallation {
			changed.Add(installation)
			return
		}
		c.addAll(ctx, changed)
		copies.Add(copiesRequest)
	}
	options := apply.Options{
		Label:        fleet.LabelCreatedByKlusterlet,
		FieldManager: fieldManager,
		Kinds:        managementKinds(),
		Optional:     optionalKinds(),
		Scheme:       mgr.GetScheme(),
		Changed:      enqueue,
	}
	if c.management, err = apply.NewCluster(mgr.GetConfig(), options); err != nil {
		return err
	}
	if err := mgr.Add(c.management); err != nil {
		return err
	}
	options.Kinds = managedKinds()
	c.managed = remote.New(ctx, options)
	c.hub = hubaccess.New(ctx, o.Clock, changed.Add)
	c.secrets = newSecretsByName(ctx, core, reviewer, func(name types.NamespacedName) {
		c.addAll(ctx, changed)
		if name.Namespace == o.Namespace {
			copies.Add(copiesRequest)
		}
	})
	if err := c.register(mgr, changed); err != nil {
		return err
	}
	return registerCopies(mgr, c, copies)
}

func (c *Controller) register(mgr ctrl.Manager, changed *requeue.Source) error {
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return c.all(ctx) })
	operator := ctrl.NewControllerManagedBy(mgr).Named("operator-klusterlet-install").
		For(&operatorv1.Klusterlet{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{},
			predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		// Others may collide with it, or no longer.
		Watches(&operatorv1.Klusterlet{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(changed).
		WithOptions(controller.Options{RateLimiter: retry.Limiter(), MaxConcurrentReconciles: atOnce})
	if c.watched(corev1.SchemeGroupVersion.WithKind("Node")) {
		operator.Watches(&corev1.Node{}, all, builder.WithPredicates(topology.NodeChanged))
	}
	if c.watched(corev1.SchemeGroupVersion.WithKind("ConfigMap")) {
		operator.Watches(&corev1.ConfigMap{}, all)
	}
	if c.watched(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")) {
		operator.Watches(&discoveryv1.EndpointSlice{}, all)
	}
	if c.watched(corev1.SchemeGroupVersion.WithKind("Pod")) {
		operator.Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod))
	}
	return operator.Complete(retry.Conflicts(c))
}

func (c *Controller) watched(kind schema.GroupVersionKind) bool {
	return rights.Watched(c.missing, kind)
}

// ofPod is the Klusterlet whose agent runs in the pod.
func ofPod(_ context.Context, pod client.Object) []reconcile.Request {
	return []reconcile.Request{requeue.Request(pod.GetLabels()[fleet.LabelCreatedByKlusterlet])}
}

// all are all Klusterlets: there is one, or one for each hosted cluster.
func (c *Controller) all(ctx context.Context) (requests []reconcile.Request) {
	list := &operatorv1.KlusterletList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil // the list of Klusterlets is known soon, which brings all of them
	}
	for i := range list.Items {
		requests = append(requests, requeue.Request(list.Items[i].Name))
	}
	return requests
}

func (c *Controller) addAll(ctx context.Context, to *requeue.Source) {
	if !to.Started() {
		return
	}
	for _, request := range c.all(ctx) {
		to.Add(request.Name)
	}
}
