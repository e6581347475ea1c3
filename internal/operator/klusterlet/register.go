package klusterlet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
	"github.com/capstan-io/capstan/internal/rights"
)

// sharedInstallation is the installation of what all Klusterlets of a cluster share.
const sharedInstallation = ""

// atOnce is how many Klusterlets are reconciled at a time: managed clusters that do not answer, each of which takes one for some seconds
// whenever it is tried, must not block the others.
const atOnce = 16

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
	options := frame.ManagerOptions(namespace, Scheme(), fleet.LabelCreatedByKlusterlet, fleet.ConfigMapHubConnection)
	options.Cache.ByObject[&corev1.Namespace{}] = cache.ByObject{
		Label: labels.SelectorFromSet(labels.Set{fleet.LabelAddOnAgentNamespace: "true"})}
	return options
}

// namespacesOf are those in which a Klusterlet has Secrets and ConfigMaps: for its agents, now and before, and the kubeconfig of a hosted
// one.
func namespacesOf(resource client.Object) []string {
	k, isKlusterlet := resource.(*operatorv1.Klusterlet)
	if !isKlusterlet {
		return nil
	}
	l := layoutOf(k)
	return []string{l.agents, l.accounts, k.Annotations[annotationAgentNamespace], k.Name}
}

var (
	namespaces = corev1.SchemeGroupVersion.WithKind("Namespace")
	configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	secrets    = corev1.SchemeGroupVersion.WithKind("Secret")
)

// Register adds the controllers to the manager. The context is that of the operator.
func Register(ctx context.Context, mgr ctrl.Manager, o Options) error {
	copies := &frame.Source{}
	o.PullSecret = fleet.SecretImagePullCredentials
	operator, err := frame.New(ctx, mgr, o.Options, frame.Kind{
		GroupVersionKind: operatorv1.GroupVersion.WithKind("Klusterlet"),
		Label:            fleet.LabelCreatedByKlusterlet,
		FieldManager:     fleet.KlusterletOperatorUserAgent,
		Elsewhere:        managedKinds(),
		Watches:          []rights.Watch{{GroupVersionKind: namespaces}, {GroupVersionKind: configMaps, Name: fleet.ConfigMapHubConnection}},
		Namespaces:       namespacesOf,
		Shared:           func() { copies.Add(copiesRequest) },
	})
	if err != nil {
		return err
	}
	c := &Controller{Operator: operator, options: o, hub: hubaccess.New(ctx, operator.Clock, operator.Changed.Add)}
	install := c.Controller(mgr, "operator-klusterlet-install", &operatorv1.Klusterlet{}, atOnce)
	if err := install.Complete(retry.Conflicts(c.reconciler())); err != nil {
		return err
	}
	return registerCopies(mgr, c, copies)
}
