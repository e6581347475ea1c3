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

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// expectRefused waits until the work is refused, which has to say where the other one is, and returns what it says.
func expectRefused(t *testing.T, c client.Client, w *workv1.ManifestWork, holder string) (message string) {
	t.Helper()
	got := framework.AwaitCondition(t, c, w, fleet.ConditionApplied, metav1.ConditionFalse)
	message = meta.FindStatusCondition(got.Status.Conditions, fleet.ConditionApplied).Message
	for _, part := range []string{holder, w.Name, "another name", "kubectl annotate"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not speak of %q: %s", part, message)
		}
	}
	if !meta.IsStatusConditionPresentAndEqual(got.Status.Conditions, fleet.ConditionAvailable, metav1.ConditionUnknown) {
		t.Errorf("conditions of a work that is refused: %+v", got.Status.Conditions)
	}
	return message
}

// WK-03: a cluster that has joined a hub twice, under two names, has works of one name from both. The first is applied, the
// second refused, as long as the first is there.
func TestWorksOfTwoNames(t *testing.T) {
	t.Parallel()
	const first, second, name = "twice-first", "twice-second", "twice"
	one, two := env.Join(t, framework.Hub, framework.Managed, first), env.Join(t, framework.Hub, framework.Managed, second)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	held, refused := framework.Work(first, name, framework.ConfigMap(ns, "first", "1")), framework.Work(second, name, framework.ConfigMap(ns, "second", "1"))
	framework.Create(t, h, held)
	framework.AwaitCondition(t, h, held, fleet.ConditionApplied, metav1.ConditionTrue)
	var applied *workv1.AppliedManifestWork
	env.Eventually(t, func(context.Context) error { // what it lists is written next to the report to the hub
		if applied = appliedWork(t, one, name); len(applied.Status.AppliedResources) != 1 {
			return fmt.Errorf("it lists %+v", applied.Status.AppliedResources)
		}
		return nil
	})
	framework.Create(t, h, refused)
	expectRefused(t, h, refused, first)
	if now := appliedWork(t, one, name); now.ResourceVersion != applied.ResourceVersion {
		t.Errorf("the AppliedManifestWork was changed: %+v, and it was %+v", now, applied)
	}

	// A refused work that goes takes nothing with it.
	if err := h.Delete(t.Context(), refused); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, refused)
	framework.AwaitConfigMap(t, m, ns, "first", "1")
	if now := appliedWork(t, one, name); now.UID != applied.UID || now.DeletionTimestamp != nil {
		t.Errorf("the AppliedManifestWork is %+v, and was %+v", now, applied)
	}

	// The end of the first work is the beginning of the second.
	refused = framework.Work(second, name, framework.ConfigMap(ns, "second", "1"))
	framework.Create(t, h, refused)
	expectRefused(t, h, refused, first)
	if err := h.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	framework.AwaitCondition(t, h, refused, fleet.ConditionApplied, metav1.ConditionTrue)
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "first"}})
	framework.AwaitConfigMap(t, m, ns, "second", "1")

	// What the message says to do about a name that has left.
	held = framework.Work(first, name, framework.ConfigMap(ns, "first", "2"))
	framework.Create(t, h, held)
	message := expectRefused(t, h, held, second)
	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	framework.FollowAdvice(t, m, message, "annotate appliedmanifestwork")
	framework.AwaitCondition(t, h, held, fleet.ConditionApplied, metav1.ConditionTrue)
	framework.AwaitConfigMap(t, m, ns, "first", "2")
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "second"}})
}

// WK-03 WK-15: a cluster that was put out by force and has joined again, under another name and with another agent, takes over what is
// there: the work of the same name goes on where the old one was, and what has no work any more is evicted.
func TestTakesOverFromPredecessor(t *testing.T) {
	t.Parallel()
	const before, after, kept, missing = "predecessor", "successor", "taken-over", "left-behind"
	old := env.Join(t, framework.Hub, framework.Managed, before)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, before)
	w := framework.Work(before, kept, framework.ConfigMap(ns, "one", "1"), framework.ConfigMap(ns, "two", "1"))
	behind := framework.Work(before, missing, framework.ConfigMap(ns, "behind", "1"))
	framework.Create(t, h, w, behind)
	for _, w := range []*workv1.ManifestWork{w, behind} {
		framework.AwaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	}
	held := appliedWork(t, old, kept)
	old.Kill()
	removeByForce(t, before)

	// The work is there first: what has none is evicted at once.
	w = framework.Work(after, kept, framework.ConfigMap(ns, "one", "2"))
	framework.Create(t, h, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: after,
		Labels: map[string]string{fleet.LabelClusterName: after}}}, w)
	successor := env.Join(t, framework.Hub, framework.Managed, after, "--appliedmanifestwork-eviction-grace-period", "1s")
	framework.AwaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	framework.AwaitConfigMap(t, m, ns, "one", "2")
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "two"}})
	now := appliedWork(t, successor, kept)
	if now.UID != held.UID || now.Spec.AgentID == held.Spec.AgentID || now.Annotations[fleet.AnnotationClusterName] != after {
		t.Errorf("the AppliedManifestWork is %+v, and was %+v", now, held)
	}
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "behind"}})
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one"}})
	framework.AwaitGone(t, h, w)
}

// WK-03 WK-15: a work agent in a process of its own takes over and evicts, as one with registration does.
func TestWorkAgentAloneTakesOverFromPredecessor(t *testing.T) {
	t.Parallel()
	const before, after, kept, missing = "predecessor-apart", "successor-apart", "taken-over-apart", "left-behind-apart"
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, before)
	stop := joinInTwoProcesses(t, before)
	w := framework.Work(before, kept, framework.ConfigMap(ns, "one", "1"), framework.ConfigMap(ns, "two", "1"))
	behind := framework.Work(before, missing, framework.ConfigMap(ns, "behind", "1"))
	framework.Create(t, h, w, behind)
	for _, w := range []*workv1.ManifestWork{w, behind} {
		framework.AwaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	}
	stop()
	removeByForce(t, before)

	w = framework.Work(after, kept, framework.ConfigMap(ns, "one", "2"))
	framework.Create(t, h, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: after,
		Labels: map[string]string{fleet.LabelClusterName: after}}}, w)
	joinInTwoProcesses(t, after)
	framework.AwaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	framework.AwaitConfigMap(t, m, ns, "one", "2")
	for _, gone := range []string{"two", "behind"} {
		framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: gone}})
	}
}

// joinInTwoProcesses joins a cluster by a registration agent and a work agent. What it returns stops both.
func joinInTwoProcesses(t *testing.T, cluster string) (stop func()) {
	t.Helper()
	registration := env.NewRegistrationAgent(t, framework.Hub, framework.Managed, cluster)
	worker := env.NewWorkAgent(t, framework.Managed, registration.HubDir, "--bootstrap-kubeconfig", registration.Bootstrap,
		"--appliedmanifestwork-eviction-grace-period", "1s")
	for _, p := range []*env.Process{registration.Process, worker} {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	env.Accept(t, framework.Hub.Client(t), cluster)
	env.AwaitAvailable(t, framework.Hub.Client(t), cluster)
	return func() {
		for _, p := range []*env.Process{worker, registration.Process} {
			if err := p.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// removeByForce removes a cluster whose agent does not run any more.
func removeByForce(t *testing.T, name string) {
	t.Helper()
	h := framework.Hub.Client(t)
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := h.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error { // the hub may be about to write to it
		err := h.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the cluster is still there: %w", err)
	})
}
