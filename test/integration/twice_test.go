package integration

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
)

// expectRefused waits until the work is refused, which has to say where the other one is.
func expectRefused(t *testing.T, c client.Client, w *workv1.ManifestWork, holder string) {
	t.Helper()
	got := awaitCondition(t, c, w, fleet.ConditionApplied, metav1.ConditionFalse)
	message := meta.FindStatusCondition(got.Status.Conditions, fleet.ConditionApplied).Message
	for _, part := range []string{holder, w.Name, "another name", "kubectl annotate"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not speak of %q: %s", part, message)
		}
	}
	if !meta.IsStatusConditionPresentAndEqual(got.Status.Conditions, fleet.ConditionAvailable, metav1.ConditionUnknown) {
		t.Errorf("conditions of a work that is refused: %+v", got.Status.Conditions)
	}
}

// WK-03: a cluster that has joined a hub twice, under two names, has works of one name from both. The first is applied, the
// second refused, as long as the first is there.
func TestWorksOfTwoNames(t *testing.T) {
	t.Parallel()
	const first, second, name = "twice-first", "twice-second", "twice"
	one, two := env.Join(t, hub, managed, first), env.Join(t, hub, managed, second)
	h, m := hub.Client(t), managed.Client(t)
	ns := namespace(t, m, name)
	held, refused := work(first, name, configMap(ns, "first", "1")), work(second, name, configMap(ns, "second", "1"))
	create(t, h, held)
	awaitCondition(t, h, held, fleet.ConditionApplied, metav1.ConditionTrue)
	var applied *workv1.AppliedManifestWork
	env.Eventually(t, func(context.Context) error { // what it lists is written next to the report to the hub
		if applied = appliedWork(t, one, name); len(applied.Status.AppliedResources) != 1 {
			return fmt.Errorf("it lists %+v", applied.Status.AppliedResources)
		}
		return nil
	})
	create(t, h, refused)
	expectRefused(t, h, refused, first)
	if now := appliedWork(t, one, name); now.ResourceVersion != applied.ResourceVersion {
		t.Errorf("the AppliedManifestWork was changed: %+v, and it was %+v", now, applied)
	}

	// A refused work that goes takes nothing with it.
	if err := h.Delete(t.Context(), refused); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, h, refused)
	awaitConfigMap(t, m, ns, "first", "1")
	if now := appliedWork(t, one, name); now.UID != applied.UID || now.DeletionTimestamp != nil {
		t.Errorf("the AppliedManifestWork is %+v, and was %+v", now, applied)
	}

	// The end of the first work is the beginning of the second.
	refused = work(second, name, configMap(ns, "second", "1"))
	create(t, h, refused)
	expectRefused(t, h, refused, first)
	if err := h.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, h, refused, fleet.ConditionApplied, metav1.ConditionTrue)
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "first"}})
	awaitConfigMap(t, m, ns, "second", "1")

	// What the message says to do about a name that has left.
	held = work(first, name, configMap(ns, "first", "2"))
	create(t, h, held)
	expectRefused(t, h, held, second)
	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+fleet.AnnotationClusterName+`":null}}}`))
	if err := m.Patch(t.Context(), appliedWork(t, one, name), patch); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, h, held, fleet.ConditionApplied, metav1.ConditionTrue)
	awaitConfigMap(t, m, ns, "first", "2")
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "second"}})
}

// WK-03 WK-15: a cluster that was put out by force and has joined again, under another name and with another agent, takes over what is
// there: the work of the same name goes on where the old one was, and what has no work any more is evicted.
func TestTakesOverFromPredecessor(t *testing.T) {
	t.Parallel()
	const before, after, kept, missing = "predecessor", "successor", "taken-over", "left-behind"
	old := env.Join(t, hub, managed, before)
	h, m := hub.Client(t), managed.Client(t)
	ns := namespace(t, m, before)
	w, behind := work(before, kept, configMap(ns, "one", "1"), configMap(ns, "two", "1")), work(before, missing, configMap(ns, "behind", "1"))
	create(t, h, w, behind)
	for _, w := range []*workv1.ManifestWork{w, behind} {
		awaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	}
	held := appliedWork(t, old, kept)
	old.Kill()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: before}}
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

	// The work is there first: what has none is evicted at once.
	w = work(after, kept, configMap(ns, "one", "2"))
	create(t, h, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: after, Labels: map[string]string{fleet.LabelClusterName: after}}}, w)
	successor := env.Join(t, hub, managed, after, "--appliedmanifestwork-eviction-grace-period", "1s")
	awaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	awaitConfigMap(t, m, ns, "one", "2")
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "two"}})
	now := appliedWork(t, successor, kept)
	if now.UID != held.UID || now.Spec.AgentID == held.Spec.AgentID || now.Annotations[fleet.AnnotationClusterName] != after {
		t.Errorf("the AppliedManifestWork is %+v, and was %+v", now, held)
	}
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "behind"}})
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one"}})
	awaitGone(t, h, w)
}
