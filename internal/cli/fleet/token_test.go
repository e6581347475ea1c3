package fleet_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const (
	accountPath  = "/api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap"
	rolePath     = "/apis/rbac.authorization.k8s.io/v1/clusterroles/open-cluster-management:bootstrap"
	rbacBindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	secretsPath  = "/api/v1/namespaces/kube-system/secrets"
)

// putCredentials puts on the hub what clusters join with, and a bootstrap token for something else.
func putCredentials(t *testing.T, h clitest.Hub) {
	t.Helper()
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	h.Put(t, accountPath, &corev1.ServiceAccount{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Name: "agent-registration-bootstrap"},
	})
	rbacType := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	h.Put(t, rolePath, &rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole")})
	for _, name := range []string{"open-cluster-management:bootstrap:agent-registration", "agent-registration-bootstrap",
		"open-cluster-management:bootstrap:managedcluster"} {
		h.Put(t, rbacBindings+"/"+name, &rbacv1.ClusterRoleBinding{TypeMeta: rbacType("ClusterRoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	putToken := func(id, label, groups string) {
		h.Put(t, secretsPath+"/bootstrap-token-"+id, &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id, Namespace: "kube-system", Labels: map[string]string{"app": label}},
			Type:       corev1.SecretTypeBootstrapToken,
			Data: map[string][]byte{
				"token-id": []byte(id), "token-secret": []byte("aaaaaaaaaaaaaaaa"), "auth-extra-groups": []byte(groups),
			},
		})
	}
	putToken("newest", "cluster-manager", "system:bootstrappers:managedcluster")
	putToken("former", "", "system:bootstrappers:other,system:bootstrappers:managedcluster")
	putToken("kubead", "", "system:bootstrappers:kubeadm:default-node-token")
}

// revoked are what "delete token" deletes.
var revoked = []string{
	accountPath, rolePath, rbacBindings + "/open-cluster-management:bootstrap:agent-registration", rbacBindings +
		"/agent-registration-bootstrap",
	secretsPath + "/bootstrap-token-newest", secretsPath + "/bootstrap-token-former",
}

// CA-22: everything to join with ends, also tokens that the hub has replaced and that are still good; others stay.
func TestDeleteToken(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putCredentials(t, h)
	h.Run(t, "", "delete", "token", "--dry-run").Succeeds(t,
		"would delete ServiceAccount open-cluster-management/agent-registration-bootstrap",
		"would delete Secret kube-system/bootstrap-token-newest")
	if deleted := h.Requests(http.MethodDelete); len(deleted) != 0 {
		t.Errorf("a dry run deleted %+v", deleted)
	}
	got := h.Run(t, "", "delete", "token")
	got.Succeeds(t, "ServiceAccount open-cluster-management/agent-registration-bootstrap is deleted",
		"ClusterRole open-cluster-management:bootstrap is deleted")
	if !strings.Contains(got.ErrOut, "capstan get token") {
		t.Errorf("nothing says how to get a new token: %s", got.ErrOut)
	}
	for _, path := range revoked {
		if h.Has(path) {
			t.Errorf("%s is still there", path)
		}
	}
	if !h.Has(secretsPath+"/bootstrap-token-kubead") || len(h.Requests(http.MethodDelete)) != len(revoked) {
		t.Errorf("deleted more than what clusters join with: %+v", h.Requests(http.MethodDelete))
	}
	h.Run(t, "", "delete", "token").Succeeds(t, "There is no token to join "+h.URL+" with")
}

// CA-22: what may not be deleted does not keep the rest.
func TestDeleteTokenForbidden(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putCredentials(t, h)
	h.Handle("DELETE "+rolePath, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "may not delete roles"))
	got := h.Run(t, "", "delete", "token")
	got.Fails(t, "delete ClusterRole open-cluster-management:bootstrap", "may not delete roles", "ask an administrator")
	if h.Has(accountPath) || h.Has(secretsPath+"/bootstrap-token-former") {
		t.Error("the tokens are still good")
	}
	if strings.Contains(got.ErrOut, "No token that was given out") {
		t.Errorf("it says that all was deleted: %s", got.ErrOut)
	}
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", http.NotFound)
	h.Run(t, "", "delete", "token").Fails(t, "is not an Open Cluster Management hub")
}

// CA-21, CA-22: after "delete token", "get token" creates again what tokens need, and what is there stays as it is.
func TestGetTokenRestores(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--use-bootstrap-token=false", "--use-bootstrap-token"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			putCredentials(t, h)
			deleted := h.Run(t, "", "delete", "token")
			deleted.Succeeds(t)
			none := h.Run(t, "", "delete", "token")
			none.Succeeds(t, "There is no token to join "+h.URL+" with")
			h.Put(t, secretsPath+"/bootstrap-token-abcdef", &corev1.Secret{ // the hub makes it by itself
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
				ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef", Labels: map[string]string{"app": "cluster-manager"}},
				Data:       map[string][]byte{"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef")},
			})
			h.Handle("POST "+accountPath+"/token", func(w http.ResponseWriter, r *http.Request) {
				if h.HasLocked(accountPath) {
					fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"secret"}}`)(w, r)
				} else {
					fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "no such account")(w, r)
				}
			})
			h.Follow(t, none, "get token", "token", "token "+flag+" --dry-run").Succeeds(t, "would")
			if h.Has(accountPath) || h.Has(rolePath) {
				t.Error("a dry run made something")
			}
			h.Follow(t, deleted, "get token", "token", "token "+flag).Succeeds(t, "token=")
			var role rbacv1.ClusterRole
			h.Get(t, rolePath, &role)
			if len(role.Rules) == 0 {
				t.Error("the role grants nothing")
			}
			var binding rbacv1.ClusterRoleBinding
			h.Get(t, rbacBindings+"/open-cluster-management:bootstrap:agent-registration", &binding)
			if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "agent-registration-bootstrap" ||
				binding.RoleRef.Name != "open-cluster-management:bootstrap" {
				t.Errorf("bound %+v", binding)
			}
			if !h.Has(accountPath) || h.Has(rbacBindings+"/agent-registration-bootstrap") {
				t.Error("made other things than were there before")
			}
		})
	}
}

// An http:// address that the hub publishes leads no agent to send its token in clear text: no token is made for it.
func TestGetTokenWithoutTLS(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putCredentials(t, h)
	h.Put(t, "/api/v1/namespaces/kube-public/configmaps/cluster-info", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
		Data: map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: 'http://hub.example.com'}}]"},
	})
	h.Run(t, "", "get", "token").Fails(t, `"http://hub.example.com", without TLS`, "cluster-info")
	if made := h.Requests(http.MethodPost); len(made) > 0 {
		t.Errorf("made %+v", made)
	}
}
