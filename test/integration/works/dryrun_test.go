package works

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// dryRunOf waits for the report of a dry run at the work's present generation.
func dryRunOf(t *testing.T, c client.Client, w *workv1.ManifestWork, status metav1.ConditionStatus) *metav1.Condition {
	t.Helper()
	framework.AwaitCondition(t, c, w, "DryRun", status)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
		t.Fatal(err)
	}
	return meta.FindStatusCondition(w.Status.Conditions, "DryRun")
}

func annotate(t *testing.T, c client.Client, w *workv1.ManifestWork, dryRun string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"capstan.io/dry-run":%s}}}`, dryRun)
	if err := c.Patch(t.Context(), w, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// Gap W12: a dry run says what would become of each manifest, shows no values of Secrets and changes nothing; the work is
// applied when it is over.
func TestDryRun(t *testing.T) {
	t.Parallel()
	const name = "dry-run"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"dry-run","name":"secret"},"data":{"key":%q}}`
	w := framework.Work(name, name, framework.ConfigMap(ns, "changed", "1"), fmt.Sprintf(secret, "Zmlyc3Q="), framework.ConfigMap(ns, "same", "1"),
		framework.ConfigMap(ns, "dropped", "1"))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	annotate(t, h, w, `"server"`)
	change(t, h, w, func(s *workv1.ManifestWorkSpec) {
		s.Workload.Manifests = framework.RawManifests(framework.ConfigMap(ns, "changed", "2"), fmt.Sprintf(secret, "c2Vjb25k"), framework.ConfigMap(ns, "same", "1"),
			framework.ConfigMap(ns, "new", "1"),
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"dry-run-made"}}`, framework.ConfigMap("dry-run-made", "in-it", "1"),
			`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"dry-run","name":"bad"},"spec":{"ports":[{"port":0}]}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"dry-run","name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},
				"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}}}`)
		s.ManifestConfigs = []workv1.ManifestConfigOption{config("apps", "deployments", ns, "web", serverSide(workv1.ServerSideApplyConfig{}))}
	})
	cond := dryRunOf(t, h, w, metav1.ConditionFalse)
	for _, words := range []string{"1 of 8 manifests would fail: v1 Service dry-run/bad",
		"Of 8 manifests, 3 would be created, 2 changed, 1 left as they are, and 1 cannot be tried; 1 objects would be deleted: configmaps dry-run/dropped"} {
		if !strings.Contains(cond.Message, words) {
			t.Errorf("%s; want %s", cond.Message, words)
		}
	}
	for i, want := range []struct{ status, reason, message string }{
		{"True", "WouldChange", `data.key: "1" -> "2"`}, {"True", "WouldChange", "data.key: changed"}, {"True", "WouldNotChange", ""},
		{"True", "WouldCreate", ""},
		{"True", "WouldCreate", ""}, {"Unknown", "CannotBeTried", "v1 Namespace dry-run-made"}, {"False", "WouldFail", "spec.ports[0].port"},
		{"True", "WouldCreate", ""},
	} {
		got := meta.FindStatusCondition(w.Status.ResourceStatus.Manifests[i].Conditions, "DryRun")
		if got == nil || string(got.Status) != want.status || got.Reason != want.reason || !strings.Contains(got.Message, want.message) ||
			strings.Contains(got.Message, "c2Vj") {
			t.Errorf("manifest %d: %+v, want %+v", i, got, want)
		}
	}
	framework.AwaitConfigMap(t, m, ns, "changed", "1")
	framework.AwaitConfigMap(t, m, ns, "dropped", "1")
	if err := m.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "new"}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run created an object: %v", err)
	}

	annotate(t, h, w, `"sever"`)
	if cond := dryRunOf(t, h, w, metav1.ConditionUnknown); !strings.Contains(cond.Message, `is "sever"; it must be "server" or "none"`) {
		t.Errorf("%+v", cond)
	}
	annotate(t, h, w, "null")
	framework.AwaitConfigMap(t, m, ns, "changed", "2")
	framework.AwaitConfigMap(t, m, "dry-run-made", "in-it", "1")
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "dropped"}})
	awaitManifest(t, h, w, 7, metav1.ConditionTrue, "")
	if meta.FindStatusCondition(w.Status.Conditions, "DryRun") != nil ||
		meta.FindStatusCondition(w.Status.ResourceStatus.Manifests[0].Conditions, "DryRun") != nil {
		t.Errorf("the report outlives the dry run: %+v", w.Status.Conditions)
	}
}

// Gap W12: a new work under a dry run gets no hold on anything.
func TestDryRunOfNewWork(t *testing.T) {
	t.Parallel()
	const name = "dry-run-new"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name, framework.ConfigMap(ns, "new", "1"))
	w.Annotations = map[string]string{"capstan.io/dry-run": "server"}
	framework.Create(t, h, w)
	dryRunOf(t, h, w, metav1.ConditionTrue)
	err := m.Get(t.Context(), client.ObjectKey{Name: appliedName(t, agent, name)}, &workv1.AppliedManifestWork{})
	if len(w.Finalizers) != 0 || !apierrors.IsNotFound(err) {
		t.Errorf("finalizers %v, AppliedManifestWork: %v", w.Finalizers, err)
	}
	annotate(t, h, w, `"none"`)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	env.Eventually(t, func(ctx context.Context) error {
		return m.Get(ctx, client.ObjectKey{Namespace: ns, Name: "new"}, &corev1.ConfigMap{})
	})
}
