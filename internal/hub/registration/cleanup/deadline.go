package cleanup

import (
	"fmt"
	"time"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/acceptance"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// deadline is when the deletion of a cluster goes on without its agent; zero is never.
type deadline struct {
	at     time.Time
	passed bool
}

// deadline of the cluster. As long as the cluster is available its agent does the work, however long that takes; that of one that is cut
// off cannot.
func (c *Controller) deadline(cluster *clusterv1.ManagedCluster) (deadline, error) {
	if acceptance.CutOff(cluster) {
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

// again is how long it is until another look. A time that is over, as of a cluster that is available all the same, needs none.
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
