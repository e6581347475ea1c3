package reach

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc/oidctest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CP-09: users of an issuer that the owner of a cluster trusts act on it under the names that it gives them, with the rights of RBAC there.
func TestClusterProxyOIDC(t *testing.T) {
	t.Parallel()
	p := framework.NewProxied(t, framework.Hub, "oidc-users")
	issuer := oidctest.Start(t)
	asked := func(path, token string) (int, string) {
		t.Helper()
		return p.Send(t, p.Config(t, p.Alice), http.MethodGet, path, http.Header{fleet.HeaderClusterAuthorization: {"Bearer " + token}}, "")
	}
	configMaps := "/api/v1/namespaces/" + p.Name + "/configmaps"
	dana := issuer.Token(t, issuer.Claims("dana", map[string]any{"groups": []string{"ops"}}))
	if code, answer := asked(configMaps, dana); code != http.StatusUnauthorized {
		t.Errorf("of an issuer that nobody trusts: %d %s", code, answer)
	}
	p.Trust(t, issuer, "groupsClaim: groups\ngroupsPrefix: 'oidc:'\nrequiredClaims: {groups: x}")
	env.Eventually(t, func(context.Context) error {
		code, answer := asked(configMaps, dana)
		if code != http.StatusUnauthorized || !strings.Contains(answer, "its claim groups has another value") {
			return fmt.Errorf("without a required claim: %d %s", code, answer)
		}
		return nil
	})
	p.Trust(t, issuer, "groupsClaim: groups\ngroupsPrefix: 'oidc:'")
	env.Eventually(t, func(context.Context) error {
		if code, answer := asked(configMaps, dana); code != http.StatusForbidden || !strings.Contains(answer, issuer.URL+"#dana") {
			return fmt.Errorf("without rights on the cluster: %d %s", code, answer)
		}
		return nil
	})
	with := http.Header{fleet.HeaderClusterAuthorization: {"Bearer " + dana}, "X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}
	if who := p.WhoIsThere(t, p.Config(t, p.Alice), with); who.Username != issuer.URL+"#dana" ||
		!slices.Equal(who.Groups, []string{"oidc:ops", "system:authenticated"}) {
		t.Errorf("on the cluster she is %+v", who)
	}
	framework.Create(t, framework.Managed.Client(t), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: "ops"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "oidc:ops"}}})
	allowed := func(token string) {
		t.Helper()
		env.Eventually(t, func(context.Context) error {
			if code, answer := asked(configMaps, token); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, answer)
			}
			return nil
		})
	}
	allowed(dana)
	issuer.Rotate(t)
	allowed(issuer.Token(t, issuer.Claims("erin", map[string]any{"groups": "ops"})))
	refused := func(want string, claims map[string]any) {
		t.Helper()
		token := issuer.Token(t, issuer.Claims("dana", claims))
		env.Eventually(t, func(context.Context) error {
			if code, answer := asked(configMaps, token); code != http.StatusUnauthorized || !strings.Contains(answer, want) {
				return fmt.Errorf("want %q, the answer is %d %s", want, code, answer)
			}
			return nil
		})
	}
	refused("token is expired", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})
	refused("expected audience", map[string]any{"aud": "other"})
	refused("has a group that is no text", map[string]any{"groups": []any{1}})
	p.Trust(t, issuer, "usernamePrefix: '-'")
	refused("which is reserved", map[string]any{"sub": "system:admin"})
	refused("which is reserved", map[string]any{"sub": "cluster:hub:" + p.Alice})
	p.Trust(t, issuer, "signingAlgs: [none]")
	p.AwaitAvailable(t, metav1.ConditionFalse, fleet.ReasonHubAccessRulesInvalid, `oidc.yaml: signingAlgs: "none"`)
}
