package placement

import (
	"fmt"
	"strings"

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
	// shortestScore is what one cluster takes at least of the note.
	shortestScore = len("a:0 ")
)

// Events are for people, who read them one by one. Where hundreds of placements change at once, writing all of them would
// hold up the decisions; then a sample has to do.
const (
	eventsPerSecond = 20
	eventsAtOnce    = 100
)

// tellWritten is PL-20 for decisions that were made or have changed.
func (c *Controller) tellWritten(owner *clusterv1beta1.Placement, result *scheduler.Result, w *decisions.Write) {
	if !c.mayTell.TryAccept() {
		return
	}
	eventType, warning := corev1.EventTypeNormal, ""
	if len(result.ExpiredScores) > 0 {
		eventType = corev1.EventTypeWarning
		warning = fmt.Sprintf("; the AddOnPlacementScores of %s have expired and count as 0", wording.FirstFew(result.ExpiredScores))
	}
	if w.Create {
		c.recorder.Eventf(owner, w.Decision, eventType, fleet.EventDecisionCreate, "DecisionCreated",
			"PlacementDecision %s is created with %d clusters%s", w.Decision.Name, len(w.Decision.Status.Decisions), warning)
	} else {
		c.recorder.Eventf(owner, w.Decision, eventType, fleet.EventDecisionUpdate, "DecisionUpdated",
			"PlacementDecision %s has %d clusters now%s", w.Decision.Name, len(w.Decision.Status.Decisions), warning)
	}
	if note := scoresNote(c.scheduler.Scores(result.Key, maxScoresNote/shortestScore)); note != "" {
		c.recorder.Eventf(owner, w.Decision, corev1.EventTypeNormal, fleet.EventScoreUpdate, "ScoreUpdated", "%s", note)
	}
}

func (c *Controller) tellRemoved(owner *clusterv1beta1.Placement, decision *clusterv1beta1.PlacementDecision) {
	if !c.mayTell.TryAccept() {
		return
	}
	c.recorder.Eventf(owner, decision, corev1.EventTypeNormal, fleet.EventDecisionDelete, "DecisionDeleted",
		"PlacementDecision %s is not needed any more", decision.Name)
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
