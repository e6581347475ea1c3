package works

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// WK-05 WK-06 WK-07 WK-13: bindings get the role that the manifest gives by then, under the strategies that update them, and go with the
// work.
func TestBindingGetsAnotherRole(t *testing.T) {
	t.Parallel()
	const name, updated, applied, made = "other-role", "updated", "applied", "made"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	bindings := func(role string) (manifests []string) {
		for _, binding := range []string{updated, applied, made} {
			manifests = append(manifests, fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding",`+
				`"metadata":{"namespace":%q,"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},`+
				`"subjects":[{"kind":"ServiceAccount","namespace":%q,"name":"default"}]}`, ns, binding, role, ns))
		}
		return manifests
	}
	w := framework.Work(name, name, bindings("view")...)
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{
		config(rbacv1.GroupName, "rolebindings", ns, applied, serverSide(workv1.ServerSideApplyConfig{})),
		config(rbacv1.GroupName, "rolebindings", ns, made, workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}),
	}
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)

	change(t, h, w, func(s *workv1.ManifestWorkSpec) { s.Workload.Manifests = framework.RawManifests(bindings("edit")...) })
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	for binding, want := range map[string]string{updated: "edit", applied: "edit", made: "view"} {
		live := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: binding}}
		framework.AwaitObject(t, m, live, func(live *rbacv1.RoleBinding) error {
			if live.RoleRef.Name != want || owned(live) != 1 {
				return fmt.Errorf("%s gives %s and has %d owners, want %s", binding, live.RoleRef.Name, owned(live), want)
			}
			return nil
		})
	}

	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	for _, binding := range []string{updated, applied, made} {
		framework.AwaitGone(t, m, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: binding}})
	}
}
