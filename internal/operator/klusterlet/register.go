package klusterlet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
	"github.com/capstan-io/capstan/internal/rights"
)

// fieldManager is that of all that is applied.
const fieldManager = "capstan-klusterlet-operator"

// sharedInstallation is the installation of what all Klusterlets of a cluster share.
const sharedInstallation = ""

// atOnce is how many Klusterlets are reconciled at a time: a managed cluster that does not answer must not block the others.
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
	return append(kinds, apply.CRDs)
}

// Scheme has the types of all that the operator reads and writes.
func Scheme() *runtime.Scheme { return frame.Scheme(workv1.AddToScheme) }

// ManagerOptions are those of a manager for the controllers of an operator in that namespace: its cache has what they read, and no more.
func ManagerOptions(namespace string) ctrl.Options {
	installed, err := labels.NewRequirement(fleet.LabelCreatedByKlusterlet, selection.Exists, nil)
	utilruntime.Must(err)
	options := frame.ManagerOptions(namespace, Scheme(), fleet.ConfigMapHubConnection)
	options.Cache.ByObject[&corev1.Namespace{}] = cache.ByObject{
		Label: labels.SelectorFromSet(labels.Set{fleet.LabelAddOnAgentNamespace: "true"})}
	options.Cache.ByObject[&corev1.Pod{}] = cache.ByObject{Label: labels.NewSelector().Add(*installed), Transform: stripPod}
	return options
}

// stripPod keeps what says why a pod does not run.
func stripPod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields, pod.Annotations, pod.Spec = nil, nil, corev1.PodSpec{}
	}
	return object, nil
}

var (
	namespaces = corev1.SchemeGroupVersion.WithKind("Namespace")
	configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	secrets    = corev1.SchemeGroupVersion.WithKind("Secret")
	pods       = corev1.SchemeGroupVersion.WithKind("Pod")
)

// Register adds the controllers to the manager. The context is that of the operator.
func Register(ctx context.Context, mgr ctrl.Manager, o Options) error {
	copies := &frame.Source{}
	o.PullSecret = fleet.SecretImagePullCredentials
	operator, err := frame.New(ctx, mgr, o.Options, frame.Kind{
		GroupVersionKind: operatorv1.GroupVersion.WithKind("Klusterlet"),
		Label:            fleet.LabelCreatedByKlusterlet,
		FieldManager:     fieldManager,
		Elsewhere:        managedKinds(),
		Watches:          []rights.Watch{{GroupVersionKind: namespaces}, {GroupVersionKind: configMaps, Name: fleet.ConfigMapHubConnection}},
		Shared:           func() { copies.Add(copiesRequest) },
	})
	if err != nil {
		return err
	}
	c := &Controller{Operator: operator, options: o, hub: hubaccess.New(ctx, operator.Clock, operator.Changed.Add)}
	install := c.Controller(mgr, "operator-klusterlet-install", &operatorv1.Klusterlet{}, atOnce)
	if c.Watched(pods) {
		install.Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod))
	}
	if err := install.Complete(retry.Conflicts(c.reconciler())); err != nil {
		return err
	}
	return registerCopies(mgr, c, copies)
}

// ofPod is the Klusterlet whose agent runs in the pod.
func ofPod(_ context.Context, pod client.Object) []reconcile.Request {
	return []reconcile.Request{frame.Request(pod.GetLabels()[fleet.LabelCreatedByKlusterlet])}
}
