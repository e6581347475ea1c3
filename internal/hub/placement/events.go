package placement

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/decisions"
)

// maxScoresNote bounds the length of the note with the scores, and cut ends one that was longer.
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

// notice is what an event says.
type notice struct{ eventType, reason, action, note string }

// tell writes events about a placement, and a decision of it unless that is nil, when it is their turn, or never if that is not within
// eventsLatest.
func (c *Controller) tell(owner *clusterv1beta1.Placement, decision *clusterv1beta1.PlacementDecision, notices ...notice) {
	// Later, the controller may be changing the objects.
	regarding := &clusterv1beta1.Placement{ObjectMeta: identityOf(owner)}
	var related runtime.Object
	if decision != nil {
		related = &clusterv1beta1.PlacementDecision{ObjectMeta: identityOf(decision)}
	}
	write := func() {
		for _, n := range notices {
			c.recorder.Eventf(regarding, related, n.eventType, n.reason, n.action, "%s", n.note)
		}
	}
	now := c.clock.Now()
	turn := c.turns.ReserveN(now, len(notices))
	switch delay := turn.DelayFrom(now); {
	case delay == 0:
		write()
	case delay > eventsLatest:
		turn.CancelAt(now)
	default:
		c.late <- lateEvents{due: now.Add(delay), write: write} // has room for all that may come within eventsLatest
	}
}

// lateEvents are events that are not written yet because too many are at once.
type lateEvents struct {
	due   time.Time
	write func()
}

// writeLateEvents writes events when it is their turn, for as long as the controller runs.
func (c *Controller) writeLateEvents(ctx context.Context, _ queue) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case events := <-c.late:
				if !c.await(ctx, events.due, nil) {
					return
				}
				events.write()
			}
		}
	}()
	return nil
}

func identityOf(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// tellWritten records the event of a decision that was created or updated.
func (c *Controller) tellWritten(owner *clusterv1beta1.Placement, result *scheduler.Result, w *decisions.Write) {
	n := notice{eventType: corev1.EventTypeNormal, reason: fleet.EventDecisionUpdate, action: "DecisionUpdated",
		note: fmt.Sprintf("PlacementDecision %s has %d clusters now", w.Decision.Name, len(w.Decision.Status.Decisions))}
	if w.Create {
		n.reason, n.action = fleet.EventDecisionCreate, "DecisionCreated"
		n.note = fmt.Sprintf("PlacementDecision %s is created with %d clusters", w.Decision.Name, len(w.Decision.Status.Decisions))
	}
	if len(result.ExpiredScores) > 0 {
		n.eventType = corev1.EventTypeWarning
		n.note += fmt.Sprintf("; the AddOnPlacementScores of %s have expired and count as 0", text.FirstFew(result.ExpiredScores))
	}
	notices := []notice{n}
	if scores := scoresNote(result.Scores); scores != "" {
		notices = append(notices, notice{corev1.EventTypeNormal, fleet.EventScoreUpdate, "ScoreUpdated", scores})
	}
	c.tell(owner, w.Decision, notices...)
}

func (c *Controller) tellRemoved(owner *clusterv1beta1.Placement, decision *clusterv1beta1.PlacementDecision) {
	c.tell(owner, decision, notice{corev1.EventTypeNormal, fleet.EventDecisionDelete, "DecisionDeleted",
		fmt.Sprintf("PlacementDecision %s is not needed any more", decision.Name)})
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

// tellDeferred says why a placement is not decided.
func (c *Controller) tellDeferred(owner *clusterv1beta1.Placement) {
	c.tell(owner, nil, notice{eventType: corev1.EventTypeWarning, reason: fleet.EventCELBudgetExceeded, action: "Evaluate",
		note: fmt.Sprintf("The celExpressions of the Placements in namespace %s cost more than their share; this Placement waits for its turn. "+
			"Use fewer or simpler expressions, or a labelSelector beside them that leaves fewer clusters", owner.Namespace)})
}
