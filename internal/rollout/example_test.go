package rollout_test

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/rollout"
)

// A change goes to a canary first, then to the others, two at a time; each has to be well for five minutes.
func ExampleDecide() {
	two := intstr.FromInt32(2)
	strategy := clusterv1alpha1.RolloutStrategy{
		Type: clusterv1alpha1.Progressive,
		Progressive: &clusterv1alpha1.RolloutProgressive{
			MandatoryDecisionGroups: clusterv1alpha1.MandatoryDecisionGroups{
				MandatoryDecisionGroups: []clusterv1alpha1.MandatoryDecisionGroup{{GroupName: "canary"}},
			},
			MaxConcurrency: &two,
			RolloutConfig:  clusterv1alpha1.RolloutConfig{MinSuccessTime: "5m"},
		},
	}
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	canary, rest := rollout.Group{Index: 0, Name: "canary"}, rollout.Group{Index: 1}
	clusters := []rollout.Cluster{
		{Name: "berlin", Group: canary, State: rollout.Succeeded, Since: noon},
		{Name: "lagos", Group: rest},
		{Name: "lima", Group: rest},
		{Name: "oslo", Group: rest},
	}
	for _, minutes := range []int{2, 5} {
		plan := rollout.Decide(rollout.Input{
			Strategy: strategy, Clusters: clusters, Now: noon.Add(time.Duration(minutes) * time.Minute),
		})
		fmt.Printf("12:%02d %s\n", minutes, plan.Message)
		for _, cluster := range plan.Clusters {
			fmt.Println("     ", cluster.Name, cluster.Phase)
		}
		fmt.Println("      oslo waits:", plan.Clusters[3].Reason)
	}
	// Output:
	// 12:02 0 of 4 clusters successful, 1 soaking, 3 waiting; now: mandatory decision group 0 (canary), at most 1 at a time
	//       berlin Soaking
	//       lagos Waiting
	//       lima Waiting
	//       oslo Waiting
	//       oslo waits: first comes mandatory decision group 0 (canary), with 1 cluster to go
	// 12:05 1 of 4 clusters successful, 2 beginning, 1 waiting; now: the rest of the placement, at most 2 at a time
	//       berlin Done
	//       lagos Start
	//       lima Start
	//       oslo Waiting
	//       oslo waits: maxConcurrency: no more than 2 clusters at a time
}
