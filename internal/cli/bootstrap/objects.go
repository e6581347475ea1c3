package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	secrets             = corev1.SchemeGroupVersion.WithResource("secrets")
	serviceAccounts     = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	clusterRoles        = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	clusterRoleBindings = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
)

// legacyBootstrapBinding is what older hubs call fleet.ClusterRoleBindingBootstrapServiceAccount.
const legacyBootstrapBinding = "agent-registration-bootstrap"

// Object is something without which nobody, or nobody with a certain token, can request to join.
type Object struct {
	Kind, Namespace, Name string

	client  hubapi.ResourceClient
	content runtime.Object // to restore it, nil for what is not restored
}

// String names the object as kubectl users do.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// accessObjects give those who have a token the right to request to join. The service account is deleted first: if it is missing,
// ServiceAccountToken restores all of them.
func accessObjects(hub *hubapi.Hub) []Object {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.ServiceAccountBootstrap}}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterRoleBootstrap},
		Rules:      fleet.BootstrapRules("get", "create", "list", "watch"),
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterRoleBindingBootstrapServiceAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	accounts := hub.Client(serviceAccounts).Namespace(account.Namespace)
	roles, bindings := hub.Client(clusterRoles), hub.Client(clusterRoleBindings)
	return []Object{
		{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name, client: accounts, content: account},
		{Kind: "ClusterRoleBinding", Name: binding.Name, client: bindings, content: binding},
		{Kind: "ClusterRoleBinding", Name: legacyBootstrapBinding, client: bindings},
		{Kind: "ClusterRole", Name: role.Name, client: roles, content: role},
	}
}

// Objects are what there is on the hub to join with: the tokens, and what makes tokens of use.
func Objects(ctx context.Context, hub *hubapi.Hub) ([]Object, error) {
	if err := hub.CheckIsHub(ctx); err != nil {
		return nil, err
	}
	list := &corev1.SecretList{}
	tokens := hub.Client(secrets).Namespace(metav1.NamespaceSystem)
	err := tokens.List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("type", string(bootstrapapi.SecretTypeBootstrapToken)).String(),
	}, list)
	if err != nil {
		return nil, hub.Explain("list the bootstrap tokens", err)
	}
	var found []Object
	for i := range list.Items {
		if joins(&list.Items[i]) {
			found = append(found, Object{
				Kind: "Secret", Namespace: metav1.NamespaceSystem, Name: list.Items[i].Name, client: tokens,
			})
		}
	}
	for _, object := range accessObjects(hub) {
		err := object.client.Get(ctx, object.Name, nil)
		switch {
		case err == nil:
			found = append(found, object)
		case !apierrors.IsNotFound(err):
			return nil, hub.Explain("read "+object.String(), err)
		}
	}
	return found, nil
}

// joins reports whether clusters join with a bootstrap token. One that the hub has replaced by a newer one does not carry the
// label any more, and is good until it expires.
func joins(secret *corev1.Secret) bool {
	if secret.Type != bootstrapapi.SecretTypeBootstrapToken {
		return false
	}
	groups := strings.Split(bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenExtraGroupsKey), ",")
	return secret.Labels[fleet.LabelApp] == fleet.AppClusterManager || slices.Contains(groups, fleet.GroupBootstrap)
}

// Delete deletes an object that Objects found. One that is gone already is no error.
func Delete(ctx context.Context, hub *hubapi.Hub, object Object) error {
	err := object.client.Delete(ctx, object.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return hub.Explain("delete "+object.String(), err)
}

// restoreAccess makes what is missing of what tokens are good for, after Delete. The service account comes last: until it is there, whoever
// is interrupted restores the rest when he tries again.
func restoreAccess(ctx context.Context, hub *hubapi.Hub) error {
	for _, object := range slices.Backward(accessObjects(hub)) {
		if object.content == nil {
			continue
		}
		err := object.client.Create(ctx, object.content, nil)
		switch {
		case err == nil || apierrors.IsAlreadyExists(err):
		case apierrors.IsNotFound(err):
			return noCredential(ctx, hub, fmt.Errorf("%s cannot be made: %w", object, err))
		default:
			return hub.Explain("make "+object.String()+", which is missing", err)
		}
	}
	return nil
}

// ensureRole restores the role that every token needs, if it is missing. Where it may not be read, it is taken to exist.
func ensureRole(ctx context.Context, hub *hubapi.Hub) error {
	err := hub.Client(clusterRoles).Get(ctx, fleet.ClusterRoleBootstrap, nil)
	if apierrors.IsNotFound(err) && !errors.Is(hub.CheckIsHub(ctx), hubapi.ErrNotAHub) {
		return restoreAccess(ctx, hub)
	}
	return nil
}
