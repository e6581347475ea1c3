package works

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// grant gives a service account rights in its namespace.
func grant(t *testing.T, c client.Client, namespace, account, role string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	framework.Create(t, c,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role}, Rules: rules},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
		})
}

// WK-33, gap W18: a work that runs as a service account may do what that may, is told which rule is missing, and goes on as
// soon as it is granted. It cannot give away rights that the account does not have.
func TestExecutor(t *testing.T) {
	t.Parallel()
	const name = "executor"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	framework.Create(t, m, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "deployer"}})
	apply := []string{"get", "create", "update", "patch", "delete"}
	grant(t, m, ns, "deployer", "one-secret", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
		ResourceNames: []string{"allowed"}, Verbs: apply},
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: apply},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create"}})
	framework.Create(t, m,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "executor-one-policy"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingadmissionpolicies"},
			ResourceNames: []string{"executor-allowed"}, Verbs: apply}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "executor-one-policy"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "executor-one-policy"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "deployer"}},
		})
	framework.Create(t, m, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "strong"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}})
	role := func(name, resource string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"namespace":%q,"name":%q},"rules":[{"apiGroups":[""],"resources":[%q],"verbs":["get"]}]}`, ns, name, resource)
	}
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"executor","name":%q}}`
	w := framework.Work(name, name, framework.ConfigMap(ns, "a", "1"), fmt.Sprintf(secret, "allowed"), fmt.Sprintf(secret, "other"), role("same", "configmaps"),
		role("more", "pods"), `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"executor-granted"}}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"namespace":"executor","name":"strong","labels":{"a":"b"}}}`,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"executor-allowed"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["widgets"]}]},"validations":[{"expression":"true"}]}}`)
	w.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: ns,
			Name: "deployer"},
	}}
	framework.Create(t, h, w)
	for ordinal, words := range []string{
		`lacks the verbs [update patch delete] on resource "configmaps" in API group "" in namespace "executor"`, "",
		`lacks the verbs [get create update patch delete] on resource "secrets"`, "", "would give away rights that it does not have",
		`lacks the verbs [get create update patch delete] on resource "namespaces" in API group "" in the whole cluster`,
		"would give away rights that it does not have", "",
	} {
		status := metav1.ConditionFalse
		if words == "" {
			status = metav1.ConditionTrue
		}
		if cond := awaitManifest(t, h, w, ordinal, status, words); words != "" && !strings.Contains(cond.Message, "not allowed to apply") {
			t.Errorf("manifest %d: %s", ordinal, cond.Message)
		}
	}
	for ordinal, command := range map[int]string{ // of different roles, as a user runs both
		0: "create role work-deployer-configmaps-update-patch-delete --verb=update,patch,delete --resource=configmaps",
		2: "create role work-deployer-secrets-get-create-update-patch-delete --verb=get,create,update,patch,delete --resource=secrets",
	} {
		awaitManifest(t, h, w, ordinal, metav1.ConditionFalse, "kubectl -n executor "+command)
	}
	for ordinal, commands := range map[int][]string{
		0: {"create role work-deployer-configmaps-", "create rolebinding work-deployer-configmaps-"},
		5: {"create clusterrole work-executor-deployer-namespaces-", "create clusterrolebinding work-executor-deployer-namespaces-"},
	} {
		message := awaitManifest(t, h, w, ordinal, metav1.ConditionFalse, "grant them on the managed cluster").Message
		for _, command := range commands {
			framework.FollowAdvice(t, m, message, command)
		}
	}
	grant(t, m, ns, "deployer", "granted", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	change(t, h, w, func(s *workv1.ManifestWorkSpec) {
		s.Workload.Manifests = append(s.Workload.Manifests[:2:2], s.Workload.Manifests[3:]...)
	})
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	framework.AwaitConfigMap(t, m, ns, "a", "1")
}

// WK-35, gap W20: failures and recoveries are events on the work, one each, and a failure that goes on is none.
func TestApplyEvents(t *testing.T) {
	t.Parallel()
	const name = "apply-events"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name, framework.ConfigMap("apply-events-later", "a", "1"), framework.ConfigMap(ns, "b", "1"))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionFalse)
	events := func(reason string, n int) []eventsv1.Event {
		t.Helper()
		var found []eventsv1.Event
		env.Eventually(t, func(ctx context.Context) error {
			list := &eventsv1.EventList{}
			if err := h.List(ctx, list, client.InNamespace(name)); err != nil {
				return err
			}
			found = nil
			for _, e := range list.Items {
				if e.Regarding.Kind == "ManifestWork" && e.Regarding.UID == w.UID && e.Reason == reason {
					found = append(found, e)
				}
			}
			if len(found) != n {
				return fmt.Errorf("%d events %s of %+v", len(found), reason, list.Items)
			}
			return nil
		})
		return found
	}
	failed := events("ManifestApplyFailed", 1)[0]
	if failed.Type != "Warning" || failed.ReportingController != "work-agent" ||
		!strings.Contains(failed.Note,
			`1 of 2 manifests failed to apply: v1 ConfigMap apply-events-later/a: namespaces "apply-events-later" not found`) {
		t.Errorf("%+v", failed)
	}
	// It fails again, in another pass of the same agent, and of one that was restarted.
	framework.PatchData(t, m, ns, "b", "key", "drift")
	framework.AwaitConfigMap(t, m, ns, "b", "1")
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	framework.PatchData(t, m, ns, "b", "key", "drift")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitConfigMap(t, m, ns, "b", "1")
	framework.Namespace(t, m, "apply-events-later")
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	if e := events("ManifestApplyRecovered", 1)[0]; e.Type != "Normal" || !strings.Contains(e.Note, "v1 ConfigMap apply-events-later/a") {
		t.Errorf("%+v", e)
	}
	if e := events("ManifestApplyFailed", 1)[0]; e.Series != nil {
		t.Errorf("a failure that went on was told again: %+v", e)
	}
}
