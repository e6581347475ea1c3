package placement

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/decisions"
	"github.com/capstan-io/capstan/internal/wording"
)

// maxScoresNote bounds the length of the note with the scores, and cut ends one that was longer (PL-20).
const (
	maxScoresNote = 1000
	cut           = "......"
)

// Events are for people, who read them one by one. Where hundreds of placements change at once, writing all of them at once
// would hold up the decisions: they come a little later then, and only a sample of thousands.
const (
	eventsPerSecond = 10
	eventsAtOnce    = 10
	eventsLatest    = time.Minute
)

// tell calls the function, which writes events, when it is its turn, or never if that is not within eventsLatest.
func (c *Controller) tell(write func()) {
	now := c.clock.Now()
	turn := c.turns.ReserveN(now, 1)
	switch delay := turn.DelayFrom(now); {
	case delay == 0:
		write()
	case delay > eventsLatest:
		turn.CancelAt(now)
	default:
		due := c.clock.After(delay)
		go func() {
			<-due
			write()
		}()
	}
}

// tellWritten is PL-20 for decisions that were made or have changed.
func (c *Controller) tellWritten(owner *clusterv1beta1.Placement, result *scheduler.Result, w *decisions.Write) {
	eventType, warning := corev1.EventTypeNormal, ""
	if len(result.ExpiredScores) > 0 {
		eventType = corev1.EventTypeWarning
		warning = fmt.Sprintf("; the AddOnPlacementScores of %s have expired and count as 0", wording.FirstFew(result.ExpiredScores))
	}
	action, reason, verb := "DecisionUpdated", fleet.EventDecisionUpdate, "has %d clusters now"
	if w.Create {
		action, reason, verb = "DecisionCreated", fleet.EventDecisionCreate, "is created with %d clusters"
	}
	note := "PlacementDecision " + w.Decision.Name + " " + fmt.Sprintf(verb, len(w.Decision.Status.Decisions)) + warning
	c.tell(func() {
		c.recorder.Eventf(owner, w.Decision, eventType, reason, action, "%s", note)
		if scores := scoresNote(result.Scores); scores != "" {
			c.recorder.Eventf(owner, w.Decision, corev1.EventTypeNormal, fleet.EventScoreUpdate, "ScoreUpdated", "%s", scores)
		}
	})
}

func (c *Controller) tellRemoved(owner *clusterv1beta1.Placement, decision *clusterv1beta1.PlacementDecision) {
	c.tell(func() {
		c.recorder.Eventf(owner, decision, corev1.EventTypeNormal, fleet.EventDecisionDelete, "DecisionDeleted",
			"PlacementDecision %s is not needed any more", decision.Name)
	})
}

// scoresNote lists clusters with their scores, as many as there is room for.
func scoresNote(scores []scheduler.ClusterScore) string {
	var note strings.Builder
	for _, s := range scores {
		fmt.Fprintf(&note, "%s:%d ", s.ClusterName, s.Score)
		if note.Len() > maxScoresNote {
			return note.String()[:maxScoresNote-len(cut)] + cut
		}
	}
	return strings.TrimSuffix(note.String(), " ")
}
