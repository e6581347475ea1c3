package placement

import (
	"time"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// addOnScore takes a score from an AddOnPlacementScore of the cluster.
type addOnScore struct {
	clusterv1beta1.AddOnScore
}

func (a addOnScore) score(c *cluster, in *scoreInput) (score int64, expired bool) {
	scores := c.score(a.ResourceName)
	if scores == nil {
		return 0, false
	}
	if scoresExpired(scores, in.now) {
		return 0, true
	}
	for i := range scores.Status.Scores {
		if scores.Status.Scores[i].Name == a.ScoreName {
			return int64(scores.Status.Scores[i].Value), false
		}
	}
	return 0, false
}

// scoresExpired reports whether validUntil has passed. Expired scores count as 0.
func scoresExpired(scores *clusterv1alpha1.AddOnPlacementScore, now time.Time) bool {
	until := scores.Status.ValidUntil
	return until != nil && !until.After(now)
}
