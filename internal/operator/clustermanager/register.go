package clustermanager

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// fieldManager is that of all that is applied.
const fieldManager = "capstan-cluster-manager-operator"

// atOnce is how many ClusterManagers are reconciled at a time: hubs elsewhere that do not answer, each of which takes one for some seconds
// whenever it is tried, must not block the others.
const atOnce = 8

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
	return append(kinds, apply.CRDs)
}

// ManagerOptions are those of a manager for the controller of an operator in that namespace: its cache has what it reads, and no more.
func ManagerOptions(namespace string) ctrl.Options {
	return frame.ManagerOptions(namespace, Scheme(), fleet.LabelCreatedByClusterManager, "")
}

// Scheme has the types of all that the operator reads and writes.
func Scheme() *runtime.Scheme { return frame.Scheme(admissionregistrationv1.AddToScheme) }

// namespacesOf are those in which a ClusterManager has Secrets: where its components run, and the kubeconfig of a hosted hub.
func namespacesOf(resource client.Object) []string {
	cm, isClusterManager := resource.(*operatorv1.ClusterManager)
	if !isClusterManager {
		return nil
	}
	return []string{namespaceOf(cm), cm.Name}
}

// Register adds the controller to the manager. The context is that of the operator.
func Register(ctx context.Context, mgr ctrl.Manager, o Options) error {
	operator, err := frame.New(ctx, mgr, o.Options, frame.Kind{
		GroupVersionKind: operatorv1.GroupVersion.WithKind("ClusterManager"),
		Label:            fleet.LabelCreatedByClusterManager,
		FieldManager:     fieldManager,
		Elsewhere:        hubKinds(),
		OnlyElsewhere:    []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Endpoints")},
		Optional:         policyKinds,
		Namespaces:       namespacesOf,
		Shared:           func() {}, // a hub shares nothing
	})
	if err != nil {
		return err
	}
	c := &Controller{Operator: operator, skipRemoveCRDs: o.SkipRemoveCRDs, agentImage: o.AgentImage}
	return c.Controller(mgr, "operator-clustermanager-install", &operatorv1.ClusterManager{}, atOnce).Complete(retry.Conflicts(c.reconciler()))
}
