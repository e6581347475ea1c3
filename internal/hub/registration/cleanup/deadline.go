package cleanup

import (
	"fmt"
	"time"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// deadline is when the deletion of a cluster continues without its agent; zero means never.
type deadline struct {
	at     time.Time
	passed bool
}

// deadline returns the deadline of the cluster. While the cluster is available, its agent cleans up, however long that takes; the agent
// of a cluster that is cut off cannot.
func (c *Controller) deadline(cluster *clusterv1.ManagedCluster) (deadline, error) {
	if managedcluster.CutOff(cluster) {
		return deadline{at: cluster.DeletionTimestamp.Time, passed: true}, nil
	}
	timeout, set := c.Timeout, c.Timeout > 0
	if value, ok := cluster.Annotations[fleet.AnnotationDeletionTimeout]; ok {
		var err error
		if timeout, err = time.ParseDuration(value); err != nil || timeout < 0 {
			return deadline{}, fmt.Errorf("the annotation %s=%q is no duration; write one such as 10m, or 0s", fleet.AnnotationDeletionTimeout,
				value)
		}
		set = true
	}
	if !set {
		return deadline{}, nil
	}
	at := cluster.DeletionTimestamp.Add(timeout)
	return deadline{at: at, passed: !available(cluster) && !c.Clock.Now().Before(at)}, nil
}

// again returns how long it is until the next check. A deadline that has passed, which can be that of an available cluster, needs none.
func (d deadline) again(now time.Time) time.Duration {
	if left := d.at.Sub(now); left > 0 {
		return min(left, safetyNet)
	}
	return safetyNet
}

// explain says what a deletion waits for.
func (d deadline) explain(cluster *clusterv1.ManagedCluster) string {
	switch {
	case available(cluster) || d.passed:
		return ""
	case d.at.IsZero():
		return fmt.Sprintf("; the agent has to clean up, but the cluster is not available. If it never comes back, go on without it: "+
			"kubectl annotate managedcluster %s %s=0s", cluster.Name, fleet.AnnotationDeletionTimeout)
	default:
		return fmt.Sprintf("; the agent has to clean up, but the cluster is not available. The hub goes on without it at %s",
			d.at.UTC().Format(time.RFC3339))
	}
}
