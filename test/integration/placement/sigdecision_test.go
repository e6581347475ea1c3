package placement

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/client/clientset/versioned"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// NX-04: a client of the SIG reads a decision of the hub with the ClusterProfile of its cluster; it goes with its placement. What has more
// than 100 clusters is in several slices.
func TestDecisionsOfTheSIG(t *testing.T) {
	t.Parallel()
	const name = "shown"
	hub := env.StartHub(t, "", "--feature-gates", "SIGPlacementDecision=true,ClusterProfile=true")
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	sig, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	h, decisions := hub.Client(t), sig.ApisV1alpha1().PlacementDecisions(name)
	framework.Create(t, h, framework.AcceptedCluster("paris"))
	framework.Namespace(t, h, name)
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	placement.Spec.Tolerations = []clusterv1beta1.Toleration{framework.Tolerant} // there is no agent
	framework.Create(t, h, framework.SetBinding(name, "global", "global"), placement)

	shown := awaitSlices(t, sig, name, name, 1)[0]
	ref := shown.Decisions[0].ClusterProfileRef
	if shown.SchedulerName != "open-cluster-management" || shown.Labels[inventory.PlacementKeyLabel] != name ||
		ref != (inventory.ClusterProfileReference{Namespace: name, Name: "paris"}) {
		t.Errorf("by %s with the labels %v: %+v", shown.SchedulerName, shown.Labels, ref)
	}
	env.Eventually(t, func(ctx context.Context) error {
		_, err := sig.ApisV1alpha1().ClusterProfiles(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		return err
	})
	if err := decisions.Delete(t.Context(), shown.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSlices(t, sig, name, name, 1)
	if err := h.Delete(t.Context(), placement, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	awaitSlices(t, sig, name, name)

	testSlices(t, hub, sig)
}

// testSlices: 101 clusters are in two slices of one decision, each cluster once.
func testSlices(t *testing.T, hub *env.Server, sig versioned.Interface) {
	t.Helper()
	const count, longest = 101, 100
	many := framework.NewSiteOn(t, hub, "many")
	var want []string
	for i := range count {
		want = append(want, many.Add(t, fmt.Sprintf("%03d", i), nil).Name)
	}
	many.Place(t, "all", clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	var got []string
	for _, slice := range awaitSlices(t, sig, many.Name, "all", longest, count-longest) {
		for _, one := range slice.Decisions {
			got = append(got, one.ClusterProfileRef.Name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("clusters %v, want %v", got, want)
	}
}

// awaitSlices waits until a client of the SIG finds the slices of a placement, with so many clusters each.
func awaitSlices(t *testing.T, sig versioned.Interface, namespace, placement string,
	clusters ...int) (found []inventory.PlacementDecision) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		list, err := sig.ApisV1alpha1().PlacementDecisions(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: inventory.DecisionKeyLabel + "=" + placement})
		if err != nil {
			return err
		}
		found = list.Items
		var have []int
		for i, slice := range found { // by name, which is their order as long as there are fewer than ten
			if index := slice.Labels[inventory.DecisionIndexLabel]; index != strconv.Itoa(i) {
				return fmt.Errorf("the index of %s is %q, want %d", slice.Name, index, i)
			}
			have = append(have, len(slice.Decisions))
		}
		if !slices.Equal(have, clusters) {
			return fmt.Errorf("the slices of %s have %v clusters, want %v", placement, have, clusters)
		}
		return nil
	})
	return found
}
