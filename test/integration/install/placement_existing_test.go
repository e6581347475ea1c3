package install

import (
	"context"
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

func bearer(token string) func(*rest.Config) *rest.Config {
	return func(config *rest.Config) *rest.Config {
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = token
		return config
	}
}

// PL-23 P8 CM-31: in an existing cluster, too, the hub places, and says why to those who may know, whether or not it leads, and in a
// process of its own.
func testPlacementExisting(t *testing.T, existing *env.Server) {
	leader, leading := framework.StartPlacementControllers(t, existing)
	s := framework.NewSiteOn(t, existing, "existing-why", "a", "b")
	s.Place(t, "one", clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "one", "a")
	s.AwaitPlacement(t, "one", fleet.ConditionPlacementSatisfied, metav1.ConditionTrue, fleet.ReasonAllDecisionsScheduled)
	standby, _ := framework.StartPlacementControllers(t, existing)
	apart := framework.StartPlacementDebug(t, existing)

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "reader"}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "reader"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{clusterv1beta1.GroupVersion.Group}, Resources: []string{"placements"}, Verbs: []string{"get"},
	}}}
	framework.Create(t, s.C, account, role,
		&rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Name, Name: account.Name}}})
	reader := bearer(framework.TokenOf(t, existing, s.Name, account.Name))
	unsaved := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "new"}}

	for name, at := range map[string]framework.Serving{"leader": leader, "standby": standby, "debug server": apart} {
		env.Eventually(t, func(ctx context.Context) error {
			_, _, asReader := at.Asker(t, existing, reader).Ask(ctx, http.MethodGet, s.Name+"/one", nil)
			_, code, asAdmin := at.Asker(t, existing, framework.AsItself).Ask(ctx, http.MethodGet, s.Name+"/one", nil)
			if code == http.StatusUnauthorized {
				t.Errorf("the %s does not know the admin's certificate: %v", name, asAdmin)
				return nil
			}
			return errors.Join(asReader, asAdmin)
		})
		got, _, err := at.Asker(t, existing, reader).Ask(t.Context(), http.MethodGet, s.Name+"/one", nil)
		if err != nil || got.Funnel.Selected != 1 || len(got.Clusters) != 2 || !got.Clusters[0].Selected {
			t.Errorf("the %s says %+v, %v", name, got, err)
		}
		got, _, err = at.Asker(t, existing, framework.AsItself).Ask(t.Context(), http.MethodPost, "", unsaved)
		if err != nil || got.Funnel.InClusterSets != 2 || got.Funnel.Selected != 0 {
			t.Errorf("the %s says of one that is not saved %+v, %v", name, got, err)
		}
		for who, test := range map[string]struct {
			as     func(*rest.Config) *rest.Config
			method string
			path   string
			code   int
		}{
			"a reader who creates":     {reader, http.MethodPost, "", http.StatusForbidden},
			"a reader of another":      {reader, http.MethodGet, "default/one", http.StatusForbidden},
			"nobody":                   {rest.AnonymousClientConfig, http.MethodGet, s.Name + "/one", http.StatusUnauthorized},
			"a client without a token": {bearer("made-up"), http.MethodGet, s.Name + "/one", http.StatusUnauthorized},
			"the admin, as a reader":   {framework.AsUser("reader"), http.MethodGet, s.Name + "/one", http.StatusBadRequest},
			"the admin, of something":  {framework.AsItself, http.MethodGet, s.Name + "/gone", http.StatusNotFound},
		} {
			if _, code, err := at.Asker(t, existing, test.as).Ask(t.Context(), test.method, test.path, unsaved); code != test.code {
				t.Errorf("the %s answers %s with %d %v, want %d", name, who, code, err, test.code)
			}
		}
	}

	// Who takes over knows what was decided.
	if err := leading.Stop(); err != nil {
		t.Errorf("the leader did not stop well: %v", err)
	}
	s.Place(t, "two", clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "two", "b")
}
