package works

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// MR-01 MR-02 MR-04 MR-06 MR-07: a rollout over four clusters with real agents, two at a time; then a change, a removal,
// and the deletion that waits for the agents.
func TestReplicaSetLife(t *testing.T) {
	t.Parallel()
	const name = "set-life"
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	framework.Namespace(t, m, name)
	var clusters []string
	for i := range 4 {
		clusters = append(clusters, fmt.Sprintf("%s-%d", name, i))
		env.Join(t, framework.Hub, framework.Managed, clusters[i])
	}
	decision := framework.Decide(t, h, name, clusters...)
	set := framework.InTurn(framework.ReplicaSet(name, name, framework.SetManifest(name, "1"), name), 2)
	set.Spec.CascadeDeletionPolicy = workv1alpha1.Foreground
	framework.Create(t, h, set)
	all := workv1alpha1.ManifestWorkReplicaSetSummary{Total: 4, DesiredTotal: 4, Applied: 4, Available: 4, Updated: 4}
	framework.AwaitUpdated(t, h, set, "1", 4, 2)
	got := framework.AwaitSummary(t, h, set, all)
	for kind, reason := range map[string]string{"PlacementVerified": "AsExpected", "PlacementRolledOut": "Complete",
		"ManifestworkApplied": "AsExpected"} {
		env.Eventually(t, func(ctx context.Context) error {
			cond := meta.FindStatusCondition(got.Status.Conditions, kind)
			if cond == nil || cond.Status != metav1.ConditionTrue || cond.Reason != reason || cond.ObservedGeneration != got.Generation {
				return errors.Join(fmt.Errorf("condition %s: %+v", kind, cond), h.Get(ctx, client.ObjectKeyFromObject(set), got))
			}
			return nil
		})
	}
	framework.AwaitConfigMap(t, m, name, name+"-1", "1")

	framework.UpdateSet(t, h, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
		s.Spec.ManifestWorkTemplate.Workload.Manifests = framework.RawManifests(framework.SetManifest(name, "2"))
	})
	framework.AwaitUpdated(t, h, set, "2", 4, 2)
	framework.AwaitSummary(t, h, set, all)
	framework.AwaitConfigMap(t, m, name, name+"-2", "2")
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-1"}})

	framework.Redecide(t, h, decision, clusters[:2]...)
	framework.AwaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, DesiredTotal: 2, Applied: 2, Available: 2,
		Updated: 2})
	if err := h.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		err := h.Get(ctx, client.ObjectKeyFromObject(set), set)
		if err == nil {
			return errors.New("the set is still there")
		}
		works, listErr := framework.WorksOf(ctx, h, set)
		if !apierrors.IsNotFound(err) || listErr != nil || len(works) > 0 {
			t.Fatalf("the set went (%v) before %d works: %v", err, len(works), listErr)
		}
		return nil
	})
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-2"}})
}
