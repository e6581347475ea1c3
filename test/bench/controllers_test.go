//go:build bench

package bench

import (
	"errors"
	"os"
	"testing"
	"time"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/test/env"
)

// existingPlacements is how many placements the controllers of a hub in an existing cluster have.
const existingPlacements = 1000

// settling is how long a process may take to give back the memory that it needed while it was busy.
const settling = 15 * time.Second

// TestControllers measures what the controllers of a hub take as a process of their own, next to an API server that is there
// already, with 1,000 clusters and 1,000 placements.
func TestControllers(t *testing.T) {
	r := newReport()
	t.Cleanup(func() {
		if err := errors.Join(r.print(os.Stdout), r.write(*out)); err != nil {
			t.Error(err)
		}
	})
	hub := env.StartHub(t, "none")
	c := hub.Client(t)
	makeScoredClusters(t, c)
	controllers := env.NewControllers(t, hub.Kubeconfig, "--leader-election-namespace", "default", "--health-probe-bind-address", "0")
	if err := controllers.Start(); err != nil {
		t.Fatal(err)
	}
	satisfied := watchSatisfied(t, hub, existingPlacements)
	began := time.Now()
	inParallel(t, existingPlacements, func(i int) error {
		placement := benchPlacement(i)
		placement.Spec.Tolerations = []clusterv1beta1.Toleration{{Operator: clusterv1beta1.TolerationOpExists}} // the clusters have no agents
		return c.Create(t.Context(), placement)
	})
	select {
	case <-satisfied:
	case <-time.After(placementTimeout):
		t.Fatalf("not all placements are satisfied after %s", placementTimeout)
	}
	took, busy := time.Since(began), usageOf(t, controllers.Pid())
	wait(t, settling)
	idle := usageOf(t, controllers.Pid())
	r.add("controllers alone: placements satisfied", "s", "", took.Seconds())
	r.add("controllers alone: resident memory, busy", "MB", "", busy.rss)
	r.add("controllers alone: resident memory, idle", "MB", "110", idle.rss)
	r.add("controllers alone: anonymous memory, idle", "MB", "", idle.anonymous)
	r.add("controllers alone: CPU", "s", "", idle.cpu.Seconds())
}
