package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

// setMessage sets the reasons of waiting clusters, the counts and the message.
func (r *rollout) setMessage(stages []*stage, current *stage) {
	if current != nil {
		r.setReasons(stages, current)
	}
	r.countPhases()
	switch r.plan.Phase {
	case Complete:
		r.plan.Message = r.completeMessage()
	case Stopped:
		r.plan.Message = r.stoppedMessage(current)
	default:
		r.plan.Message = r.rollingMessage(current)
	}
}

// setReasons sets what the clusters of each stage wait for.
func (r *rollout) setReasons(stages []*stage, current *stage) {
	var stopped string
	if r.plan.Phase == Stopped {
		stopped = "the rollout has stopped: " + r.describeFailures(current)
	}
	for _, s := range stages {
		var reason string
		switch {
		case stopped != "":
			reason = stopped
		case s == current:
			reason = fmt.Sprintf("maxConcurrency: no more than %s at a time", text.Count(s.slots, "cluster"))
		default:
			reason = fmt.Sprintf("first comes %s, with %s to go", current.name, text.Count(current.remaining(), "cluster"))
		}
		for _, i := range s.waiting {
			r.plan.Clusters[i].Reason = reason
		}
		for _, i := range s.absent {
			r.plan.Clusters[i].Reason = fmt.Sprintf("it cannot be given the change; %s waits until one of its clusters has succeeded", s.name)
		}
	}
}

func (r *rollout) completeMessage() string {
	selected := r.selected()
	if selected == 0 {
		return "no clusters are selected"
	}
	message := fmt.Sprintf("%d of %s successful%s", r.plan.Count[Done], text.Count(selected, "cluster"),
		r.listCounts(HasFailed, TimedOut, Skipped))
	failed := slices.Concat(r.plan.Names(HasFailed), r.plan.Names(TimedOut))
	switch {
	case r.plan.Succeeded():
		return "complete: " + message
	case len(failed) == 0:
		return "no more clusters begin: " + message
	}
	slices.Sort(failed)
	return fmt.Sprintf("no more clusters begin: %s; repair the failed clusters (%s), or roll out another change", message,
		text.FirstFew(failed))
}

func (r *rollout) rollingMessage(current *stage) string {
	return fmt.Sprintf("%d of %s successful%s; now: %s, at most %d at a time", r.plan.Count[Done], text.Count(r.selected(), "cluster"),
		r.listCounts(Start, InProgress, Soaking, HasFailed, TimedOut, Waiting, Skipped), current.name, current.slots)
}

func (r *rollout) stoppedMessage(current *stage) string {
	advice := "repair the failed clusters, roll out another change, or raise maxFailures"
	if current.mandatory {
		advice = "repair the failed clusters, or roll out another change"
	}
	return fmt.Sprintf("stopped: %s; %d of %s successful%s; %s", r.describeFailures(current), r.plan.Count[Done],
		text.Count(r.selected(), "cluster"), r.listCounts(InProgress, Soaking, Waiting, Skipped), advice)
}

// describeFailures names the failed clusters of a stage, and how many are tolerated.
func (r *rollout) describeFailures(s *stage) string {
	names := make([]string, len(s.failed))
	for i, index := range s.failed {
		names[i] = r.plan.Clusters[index].Name
	}
	slices.Sort(names)
	limit := fmt.Sprintf("maxFailures tolerates %d", s.tolerated)
	if s.mandatory {
		limit = "mandatory groups tolerate none"
	}
	return fmt.Sprintf("%s in %s (%s), %s", text.Count(len(s.failed), "failure"), s.name, text.FirstFew(names), limit)
}

var phaseText = map[ClusterPhase]string{
	Start: "beginning", InProgress: "in progress", Soaking: "soaking", HasFailed: "failed", TimedOut: "timed out",
	Waiting: "waiting", Skipped: "skipped",
}

// listCounts lists the numbers of clusters in these phases, other than 0: ", 2 failed, 1 waiting".
func (r *rollout) listCounts(phases ...ClusterPhase) string {
	var message strings.Builder
	for _, phase := range phases {
		if n := r.plan.Count[phase]; n > 0 {
			fmt.Fprintf(&message, ", %d %s", n, phaseText[phase])
		}
	}
	return message.String()
}

func (r *rollout) selected() int {
	return len(r.plan.Clusters) - r.plan.Count[Remove]
}
