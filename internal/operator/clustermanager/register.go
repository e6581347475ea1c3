package clustermanager

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
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
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/crds"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/operator/requeue"
	"github.com/capstan-io/capstan/internal/operator/rights"
	"github.com/capstan-io/capstan/internal/operator/topology"
)

// fieldManager is that of all that is applied.
const fieldManager = "capstan-cluster-manager-operator"

var webhookKinds = []schema.GroupVersionKind{
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
}

// policyKinds are served since Kubernetes 1.30.
var policyKinds = []schema.GroupVersionKind{
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
}

// optionalKinds are those that a hub works without.
func optionalKinds() []schema.GroupVersionKind {
	return append([]schema.GroupVersionKind{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")}, policyKinds...)
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
	return append(kinds, crds.Kind)
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
				FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, fleet.SecretExternalHubKubeconfig)}}},
			&corev1.Node{}: {Transform: topology.StripNode},
		},
	}
}

// kindClusterManager is what the operator is for.
var kindClusterManager = operatorv1.GroupVersion.WithKind("ClusterManager")

// watches are those of the cache of the manager, and of what is listed without a cache: why pods do not run, and where the API server is.
func watches(namespace string) []rights.Watch {
	return []rights.Watch{
		{GroupVersionKind: kindClusterManager},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node")},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: namespace},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Namespace: namespace},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Name: fleet.SecretExternalHubKubeconfig},
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod")},
		{GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), Namespace: metav1.NamespaceDefault},
	}
}

// Register adds the controller to the manager. The context is that of the operator.
func Register(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
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
	if !rights.Watched(missing, kindClusterManager) { // there is nothing to report it on; installers may give the rights later
		mgr.GetLogger().Info("The operator waits until it may watch ClusterManagers", "rules", rights.Rules(missing))
	}
	if err := mgr.Add(rights.Recheck{Reviewer: reviewer, Watches: missing}); err != nil {
		return err
	}
	changed := &requeue.Source{}
	options := apply.Options{Label: fleet.LabelCreatedByClusterManager, FieldManager: fieldManager,
		Kinds: managementKinds(), Optional: optionalKinds(), Scheme: mgr.GetScheme(), Changed: changed.Add}
	management, err := apply.NewCluster(mgr.GetConfig(), options)
	if err != nil {
		return err
	}
	if err := mgr.Add(management); err != nil {
		return err
	}
	options.Kinds = append(hubKinds(), corev1.SchemeGroupVersion.WithKind("Endpoints"))
	c := &Controller{Options: o, client: rights.WithoutWatches(mgr.GetClient(), mgr.GetAPIReader(), missing), missing: missing,
		recorder: mgr.GetEventRecorder(fieldManager), management: management, hubs: remote.New(ctx, options), access: mgr.GetConfig()}
	operator := ctrl.NewControllerManagedBy(mgr).Named("operator-clustermanager-install").
		For(&operatorv1.ClusterManager{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{},
			predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		// Others may have the same hub, or no longer.
		Watches(&operatorv1.ClusterManager{}, handler.EnqueueRequestsFromMapFunc(c.all),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(changed).
		WithOptions(controller.Options{RateLimiter: retry.Limiter()})
	inputs := map[string]client.Object{"Node": &corev1.Node{}, "Secret": &corev1.Secret{}, "ConfigMap": &corev1.ConfigMap{}}
	for kind, watched := range inputs {
		if rights.Watched(missing, corev1.SchemeGroupVersion.WithKind(kind)) {
			operator.Watches(watched, handler.EnqueueRequestsFromMapFunc(c.all), builder.WithPredicates(topology.NodeChanged))
		}
	}
	return operator.Complete(retry.Conflicts(c))
}

// all are all ClusterManagers: there are one or two.
func (c *Controller) all(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	list := &operatorv1.ClusterManagerList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil
	}
	for i := range list.Items {
		requests = append(requests, requeue.Request(list.Items[i].Name))
	}
	return requests
}
