package placement

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-41: the sets that every hub has come back, and stay what they are, unless a user says that they may change.
func TestDefaultSets(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "registration")
	c := own.Client(t)
	want := map[string]clusterv1beta2.ManagedClusterSelector{
		"default": {SelectorType: clusterv1beta2.ExclusiveClusterSetLabel},
		"global":  {SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{}},
	}
	uids := map[string]types.UID{}
	await := func(name string, selector clusterv1beta2.ManagedClusterSelector) *clusterv1beta2.ManagedClusterSet {
		t.Helper()
		set := &clusterv1beta2.ManagedClusterSet{}
		env.Eventually(t, func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKey{Name: name}, set); err != nil {
				return err
			}
			if set.UID == uids[name] || !equality.Semantic.DeepEqual(set.Spec.ClusterSelector, selector) {
				return fmt.Errorf("the set is %+v", set)
			}
			return nil
		})
		return set
	}
	for name, selector := range want {
		set := await(name, selector)
		uids[name] = set.UID
		if err := c.Delete(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		set = await(name, selector)
		other := clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		change := func(annotations map[string]string) {
			t.Helper()
			before := set.DeepCopy()
			set.Annotations, set.Spec.ClusterSelector = annotations, other
			if err := c.Patch(t.Context(), set, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
		}
		change(nil)
		set = await(name, selector)
		change(map[string]string{fleet.AnnotationAutoUpdate: "false"})
		awaitMembers(t, c, name, "No ManagedCluster selected", set.Generation) // the controllers have seen it
		await(name, other)
	}
	for _, reason := range []string{
		fleet.EventDefaultManagedClusterSetCreated, fleet.EventDefaultManagedClusterSetSpecRollbacked,
		fleet.EventGlobalManagedClusterSetCreated, fleet.EventGlobalManagedClusterSetSpecRollbacked,
	} {
		framework.AwaitEvent(t, c, metav1.NamespaceDefault, reason)
	}
}

// awaitMembers waits until a set's condition says this of a generation.
func awaitMembers(t *testing.T, c client.Client, set, message string, generation int64) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		got := &clusterv1beta2.ManagedClusterSet{}
		if err := c.Get(ctx, client.ObjectKey{Name: set}, got); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(got.Status.Conditions, fleet.ConditionClusterSetEmpty)
		if cond == nil || cond.Message != message || cond.ObservedGeneration < generation {
			return fmt.Errorf("set %s: want %q, have %+v", set, message, cond)
		}
		if empty := message == "No ManagedCluster selected"; (cond.Status == metav1.ConditionTrue) != empty {
			return fmt.Errorf("set %s: %+v", set, cond)
		}
		return nil
	})
}

// RG-40
func TestSetMembers(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	const none, one, two = "No ManagedCluster selected", "1 ManagedClusters selected", "2 ManagedClusters selected"
	framework.Create(t, c,
		framework.ClusterSet("members-exclusive", clusterv1beta2.ExclusiveClusterSetLabel, nil),
		framework.ClusterSet("members-selected", clusterv1beta2.LabelSelector, &metav1.LabelSelector{MatchLabels: map[string]string{"members": "yes"}}))
	awaitMembers(t, c, "members-exclusive", none, 1)
	awaitMembers(t, c, "members-selected", none, 1)
	var clusters []*clusterv1.ManagedCluster
	for _, name := range []string{"member1", "member2"} {
		mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{fleet.LabelClusterSet: "members-exclusive", "members": "yes"}}}
		framework.Create(t, c, mc)
		clusters = append(clusters, mc)
	}
	awaitMembers(t, c, "members-exclusive", two, 1)
	awaitMembers(t, c, "members-selected", two, 1)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"members":"no"}}}`))
	if err := c.Patch(t.Context(), clusters[0], patch); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, c, "members-selected", one, 1)
	if err := c.Delete(t.Context(), clusters[1]); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, c, "members-exclusive", one, 1)
	awaitMembers(t, c, "members-selected", none, 1)
}

// RG-42
func TestBinding(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "bound"}}
	binding.Spec.ClusterSet = "bound"
	await := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(binding), binding); err != nil {
				return err
			}
			cond := meta.FindStatusCondition(binding.Status.Conditions, fleet.ConditionBound)
			if cond == nil || cond.Status != status || cond.Reason != reason {
				return fmt.Errorf("want %s (%s), have %+v", status, reason, cond)
			}
			return nil
		})
	}
	framework.Create(t, c, binding)
	await(metav1.ConditionFalse, fleet.ReasonClusterSetNotFound)
	set := framework.ClusterSet("bound", clusterv1beta2.ExclusiveClusterSetLabel, nil)
	framework.Create(t, c, set)
	await(metav1.ConditionTrue, fleet.ReasonClusterSetBound)
	if err := c.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	await(metav1.ConditionFalse, fleet.ReasonClusterSetNotFound)
}
