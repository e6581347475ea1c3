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

// maxScoresNote limits the length of the note with the scores. Longer ones end with truncated.
const (
	maxScoresNote = 1000
	truncated     = "......"
)

// Limits of events. If hundreds of placements change at once, their events would delay the decisions. So events are written with a rate
// limit, and dropped if that delays them too long.
const (
	eventsPerSecond = 10
	eventBurst      = 10
	maxEventDelay   = time.Minute
)

// eventContent is the content of one event.
type eventContent struct{ eventType, reason, action, note string }

// recordEvents writes events about a placement and, unless it is nil, one of its decisions: at once if the rate limit allows,
// otherwise delayed. Events that would be delayed by more than maxEventDelay are dropped.
func (c *Controller) recordEvents(owner *clusterv1beta1.Placement, decision *clusterv1beta1.PlacementDecision, contents ...eventContent) {
	// Copies, as the controller may change the objects before the events are written.
	regarding := &clusterv1beta1.Placement{ObjectMeta: identityOf(owner)}
	var related runtime.Object
	if decision != nil {
		related = &clusterv1beta1.PlacementDecision{ObjectMeta: identityOf(decision)}
	}
	write := func() {
		for _, n := range contents {
			c.recorder.Eventf(regarding, related, n.eventType, n.reason, n.action, "%s", n.note)
		}
	}
	now := c.clock.Now()
	reservation := c.eventLimiter.ReserveN(now, len(contents))
	switch delay := reservation.DelayFrom(now); {
	case delay == 0:
		write()
	case delay > maxEventDelay:
		reservation.CancelAt(now)
	default:
		c.delayed <- delayedEvents{due: now.Add(delay), write: write} // it has room for all events within maxEventDelay
	}
}

// delayedEvents are events that wait for the rate limit.
type delayedEvents struct {
	due   time.Time
	write func()
}

// runEventWriter writes delayed events when they are due, until the context ends.
func (c *Controller) runEventWriter(ctx context.Context, _ queue) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case events := <-c.delayed:
				if !c.wait(ctx, events.due, nil) {
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

// recordWritten records the event of a PlacementDecision that was created or updated, and the one with the scores.
func (c *Controller) recordWritten(owner *clusterv1beta1.Placement, result *scheduler.Result, w *decisions.Write) {
	n := eventContent{eventType: corev1.EventTypeNormal, reason: fleet.EventDecisionUpdate, action: "DecisionUpdated",
		note: fmt.Sprintf("PlacementDecision %s has %d clusters now", w.Decision.Name, len(w.Decision.Status.Decisions))}
	if w.Create {
		n.reason, n.action = fleet.EventDecisionCreate, "DecisionCreated"
		n.note = fmt.Sprintf("PlacementDecision %s is created with %d clusters", w.Decision.Name, len(w.Decision.Status.Decisions))
	}
	if len(result.ExpiredScores) > 0 {
		n.eventType = corev1.EventTypeWarning
		n.note += fmt.Sprintf("; the AddOnPlacementScores of %s have expired and count as 0", text.FirstFew(result.ExpiredScores))
	}
	contents := []eventContent{n}
	if scores := scoresNote(result.Scores); scores != "" {
		contents = append(contents, eventContent{corev1.EventTypeNormal, fleet.EventScoreUpdate, "ScoreUpdated", scores})
	}
	c.recordEvents(owner, w.Decision, contents...)
}

func (c *Controller) recordDeleted(owner *clusterv1beta1.Placement, decision *clusterv1beta1.PlacementDecision) {
	c.recordEvents(owner, decision, eventContent{corev1.EventTypeNormal, fleet.EventDecisionDelete, "DecisionDeleted",
		fmt.Sprintf("PlacementDecision %s is not needed any more", decision.Name)})
}

// scoresNote lists clusters with their scores, up to maxScoresNote characters.
func scoresNote(scores []scheduler.ClusterScore) string {
	var note strings.Builder
	for _, s := range scores {
		fmt.Fprintf(&note, "%s:%d ", s.ClusterName, s.Score)
		if note.Len() > maxScoresNote {
			return note.String()[:maxScoresNote-len(truncated)] + truncated
		}
	}
	return strings.TrimSuffix(note.String(), " ")
}

// recordDeferred records why a placement is not scheduled yet.
func (c *Controller) recordDeferred(owner *clusterv1beta1.Placement) {
	c.recordEvents(owner, nil, eventContent{eventType: corev1.EventTypeWarning, reason: fleet.EventCELBudgetExceeded, action: "Evaluate",
		note: fmt.Sprintf("The celExpressions of the Placements in namespace %s cost more than their share; this Placement waits until its namespace has "+
			"budget again. Use fewer or simpler expressions, or an additional labelSelector that leaves fewer clusters", owner.Namespace)})
}
