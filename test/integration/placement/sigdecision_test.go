package placement

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// NX-04: a decision of the hub is shown in the API of the SIG with the ClusterProfile of its cluster, and goes with its placement.
func TestDecisionsOfTheSIG(t *testing.T) {
	t.Parallel()
	const name = "shown"
	h := env.StartHub(t, "", "--feature-gates", "SIGPlacementDecision=true,ClusterProfile=true").Client(t)
	framework.Create(t, h, framework.AcceptedCluster("paris"))
	framework.Namespace(t, h, name)
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	placement.Spec.Tolerations = []clusterv1beta1.Toleration{ // there is no agent
		{Key: "cluster.open-cluster-management.io/unreachable", Operator: clusterv1beta1.TolerationOpExists}}
	framework.Create(t, h, framework.SetBinding(name, "global", "global"), placement)
	shown := &multiclusterv1alpha1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-decision-1"}}
	framework.AwaitObject(t, h, shown, func(shown *multiclusterv1alpha1.PlacementDecision) error {
		if len(shown.Decisions) != 1 || shown.Labels["multicluster.x-k8s.io/placement-key"] != name {
			return fmt.Errorf("labels %v, decisions %+v", shown.Labels, shown.Decisions)
		}
		return nil
	})
	ref := shown.Decisions[0].ClusterProfileRef
	framework.AwaitObject(t, h, &multiclusterv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}},
		func(*multiclusterv1alpha1.ClusterProfile) error { return nil })
	if err := h.Delete(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, h, shown, func(*multiclusterv1alpha1.PlacementDecision) error { return nil })
	if err := h.Delete(t.Context(), placement, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, shown)
}
