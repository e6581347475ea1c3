package clustermanager

import (
	"context"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/remote"
)

// fieldManager is that of all that is applied.
const fieldManager = "capstan-cluster-manager-operator"

var kindCRD = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

var webhookKinds = []schema.GroupVersionKind{
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
}

// policyKinds are served since Kubernetes 1.30.
var policyKinds = []schema.GroupVersionKind{
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
}

// hubKinds are those of the objects on a hub, in the order in which they are deleted.
func hubKinds() []schema.GroupVersionKind {
	kinds := slices.Concat(webhookKinds, policyKinds)
	for _, kind := range []string{"Service", "ServiceAccount", "Namespace"} {
		kinds = append(kinds, corev1.SchemeGroupVersion.WithKind(kind))
	}
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding", "ClusterRole", "Role"} {
		kinds = append(kinds, rbacv1.SchemeGroupVersion.WithKind(kind))
	}
	return append(kinds, kindCRD)
}

// managementKinds are those of the objects on the operator's cluster, which may be a hub, too.
func managementKinds() []schema.GroupVersionKind {
	return append([]schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("Deployment"), policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
		corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	}, hubKinds()...)
}

// Scheme has the types of all that the operator reads and writes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{operatorv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme,
		admissionregistrationv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, apiextensionsv1.AddToScheme,
		discoveryv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// CacheOptions are those of the manager: it keeps what the controller reads from the operator's namespace, and the Secrets that lead to
// hosted hubs, and no other Secrets.
func CacheOptions(namespace string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{namespace: {}}},
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {}, cache.AllNamespaces: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", fleet.SecretExternalHubKubeconfig)}}},
			&corev1.Node{}: {Transform: stripNode},
		},
	}
}

// stripNode keeps what tells whether pods can run on a node.
func stripNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields, node.Annotations, node.Status = nil, nil, corev1.NodeStatus{}
	}
	return object, nil
}

// Register adds the controller to the manager. The context is that of the operator.
func Register(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	changes := &changes{}
	options := apply.Options{Label: fleet.LabelCreatedByClusterManager, FieldManager: fieldManager,
		Kinds: managementKinds(), Optional: policyKinds, Scheme: mgr.GetScheme(), Changed: changes.add}
	management, err := apply.NewCluster(mgr.GetConfig(), options)
	if err != nil {
		return err
	}
	if err := mgr.Add(management); err != nil {
		return err
	}
	options.Kinds = append(hubKinds(), corev1.SchemeGroupVersion.WithKind("Endpoints"))
	c := &Controller{Options: o, client: mgr.GetClient(), management: management, hubs: remote.New(ctx, options), access: mgr.GetConfig()}
	return ctrl.NewControllerManagedBy(mgr).Named("operator-clustermanager-install").
		For(&operatorv1.ClusterManager{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{},
			predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.all), builder.WithPredicates(nodeChanged)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.all)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.all)).
		WatchesRawSource(source.Func(changes.start)).
		WithOptions(controller.Options{RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// nodeChanged passes changes that may change the number of replicas.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isNode := e.ObjectOld.(*corev1.Node)
	after, areNodes := e.ObjectNew.(*corev1.Node)
	return !isNode || !areNodes || !equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) || before.Spec.Unschedulable != after.Spec.Unschedulable
}}

// all are all ClusterManagers: there are one or two.
func (c *Controller) all(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	list := &operatorv1.ClusterManagerList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil
	}
	for i := range list.Items {
		requests = append(requests, requestOf(list.Items[i].Name))
	}
	return requests
}

func requestOf(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// changes puts installations that have changed into the queue of the controller.
type changes struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// start is a source.Func. Changes from before are those of the first list, which the first reconcile sees.
func (c *changes) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = queue
	return nil
}

func (c *changes) add(installation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue != nil {
		c.queue.Add(requestOf(installation))
	}
}
