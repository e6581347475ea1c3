package replicaset

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/rollout"
)

// report writes the status of the set.
func (c *Controller) report(ctx context.Context, s *snapshot, failed selected.Errors) error {
	before := s.set.DeepCopy()
	status := &s.set.Status
	status.PlacementsSummary = nil
	status.Summary = workv1alpha1.ManifestWorkReplicaSetSummary{}
	for _, p := range s.placements {
		summary := s.summarize(p)
		status.PlacementsSummary = append(status.PlacementsSummary, summary)
		add(&status.Summary, summary.Summary)
	}
	for _, condition := range []metav1.Condition{s.verified(), s.rolledOut(), s.applied(failed)} {
		condition.Message = text.Message(condition.Message) // there may be any number of placements
		condition.ObservedGeneration = s.set.Generation
		condition.LastTransitionTime = metav1.NewTime(s.now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	c.reportMoves(s)
	_, err := patch.Status(ctx, c.client, s.set, before)
	return err
}

// reportDeletion reports which works a set that is being deleted waits for.
func (c *Controller) reportDeletion(ctx context.Context, set, before *workv1alpha1.ManifestWorkReplicaSet, works []*work) error {
	names := make([]string, 0, len(works))
	for _, w := range works {
		names = append(names, w.Namespace+"/"+w.Name)
	}
	slices.Sort(names)
	set.Status.Summary = workv1alpha1.ManifestWorkReplicaSetSummary{Total: len(works)}
	set.Status.PlacementsSummary = nil
	meta.SetStatusCondition(&set.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionManifestworkApplied, Status: metav1.ConditionFalse, Reason: fleet.ReasonProcessing,
		Message:            fmt.Sprintf("being deleted: waits for %s to go: %s", text.Count(len(works), "work"), text.FirstFew(names)),
		ObservedGeneration: set.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	})
	_, err := patch.Status(ctx, c.client, set, before)
	return client.IgnoreNotFound(err)
}

// summarize counts the works of a placement that are not being deleted. Only conditions about the present generation of a work count.
func (s *snapshot) summarize(p *placement) workv1alpha1.PlacementSummary {
	var sum workv1alpha1.ManifestWorkReplicaSetSummary
	groups := map[int32]bool{}
	for _, cluster := range p.selected {
		groups[cluster.Group.Index] = true
	}
	sum.DesiredTotal = len(p.selected)
	leaving := p.leaving()
	for _, w := range p.works {
		if !w.DeletionTimestamp.IsZero() || leaving[w.Namespace] {
			continue
		}
		sum.Total++
		for _, counted := range []struct {
			yes bool
			in  *int
		}{
			{isTrue(w.current(fleet.ConditionApplied)), &sum.Applied},
			{isTrue(w.current(fleet.ConditionAvailable)), &sum.Available},
			{isTrue(w.current(fleet.ConditionProgressing)), &sum.Progressing},
			{isTrue(w.current(fleet.ConditionDegraded)), &sum.Degraded},
			{s.isCurrent(w), &sum.Updated},
		} {
			if counted.yes {
				*counted.in++
			}
		}
	}
	if !p.known() {
		sum.DesiredTotal = sum.Total // the existing works stay
	}
	return workv1alpha1.PlacementSummary{
		Name: p.Name, Summary: sum,
		AvailableDecisionGroups: fmt.Sprintf("%d (%d / %d clusters applied)", len(groups), sum.Updated, sum.DesiredTotal),
	}
}

// leaving returns the clusters whose works have just been deleted.
func (p *placement) leaving() map[string]bool {
	names := map[string]bool{}
	for _, name := range p.plan.Names(rollout.Remove) {
		names[name] = !p.kept[name]
	}
	return names
}

func add(sum *workv1alpha1.ManifestWorkReplicaSetSummary, more workv1alpha1.ManifestWorkReplicaSetSummary) {
	sum.Total += more.Total
	sum.DesiredTotal += more.DesiredTotal
	sum.Applied += more.Applied
	sum.Available += more.Available
	sum.Degraded += more.Degraded
	sum.Progressing += more.Progressing
	sum.Updated += more.Updated
}

// verified returns the condition PlacementVerified.
func (s *snapshot) verified() metav1.Condition {
	cond := metav1.Condition{Type: fleet.ConditionPlacementVerified, Status: metav1.ConditionTrue, Reason: fleet.ReasonAsExpected}
	selected := 0
	var missing, notes, passed []string
	for _, p := range s.placements {
		selected += len(p.selected)
		if others := p.passed.String(); others != "" {
			passed = append(passed, fmt.Sprintf("placement %s: %s", p.Name, others))
		}
		switch {
		case !p.known():
			missing = append(missing, p.message)
			// A placement that does not exist is the worse of the two.
			if cond.Reason != fleet.ReasonPlacementDecisionNotFound {
				cond.Status, cond.Reason = metav1.ConditionFalse, p.reason
			}
		case len(p.selected) == 0 && len(p.passed) == 0:
			notes = append(notes, fmt.Sprintf("Placement %s selects no clusters, its status says why", p.Name))
		}
	}
	if selected == 0 && cond.Status == metav1.ConditionTrue {
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonPlacementDecisionEmpty
	}
	cond.Message = strings.Join(append(missing, notes...), "; ")
	if cond.Message == "" {
		cond.Message = fmt.Sprintf("%s selected by %s", text.Count(selected, "cluster"), text.Count(len(s.placements), "placement"))
	}
	cond.Message = strings.Join(append([]string{cond.Message}, passed...), "; ")
	return cond
}

// rolledOut returns the condition PlacementRolledOut. It is True only when every selected cluster has succeeded, however many failures
// the strategy tolerates, because users wait for it. Its message reports the rollout of each placement, and what was changed of an
// invalid strategy.
func (s *snapshot) rolledOut() metav1.Condition {
	cond := metav1.Condition{Type: fleet.ConditionPlacementRolledOut, Status: metav1.ConditionTrue, Reason: fleet.ReasonComplete}
	var messages []string
	if s.rollback != "" {
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonProgressing
		messages = append(messages, s.rollback)
	}
	if s.warning != "" {
		messages = append(messages, s.warning)
	}
	for _, p := range s.placements {
		message := p.plan.Message
		if !p.known() {
			message = "nothing is changed: there are no decisions"
		}
		if !p.known() || !p.plan.Succeeded() {
			cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonProgressing
		}
		for _, note := range p.plan.Notes {
			message += "; note: " + note
		}
		if frozen := p.frozen(); len(frozen) > 0 {
			message += fmt.Sprintf("; skipped: agents leave the works of %s alone, because they were complete before this change: delete these "+
				"ManifestWorks to have new ones made", text.FirstFew(frozen))
		}
		if going := p.going(); len(going) > 0 {
			message += fmt.Sprintf("; being deleted: ManifestWorks %s: new ones are made when their agents have cleaned up", text.FirstFew(going))
		}
		if unwritten := p.unwritten(); len(unwritten) > 0 {
			message += fmt.Sprintf("; the works of %s cannot be written: ManifestworkApplied says why", text.FirstFew(unwritten))
		}
		messages = append(messages, fmt.Sprintf("placement %s: %s", p.Name, message))
	}
	cond.Message = strings.Join(messages, "\n")
	return cond
}

// frozen returns the clusters that are skipped because their works are frozen.
func (p *placement) frozen() (clusters []string) {
	for _, cluster := range p.plan.Names(rollout.Skipped) {
		if w := p.works[cluster]; w != nil && w.DeletionTimestamp.IsZero() && w.isFrozen() {
			clusters = append(clusters, cluster)
		}
	}
	return clusters
}

// going returns the works of selected clusters that are being deleted.
func (p *placement) going() (names []string) {
	for _, cluster := range p.selected {
		if w := p.works[cluster.Name]; w.isGoing() {
			names = append(names, w.Namespace+"/"+w.Name)
		}
	}
	slices.Sort(names)
	return names
}

// unwritten returns the absent clusters whose works cannot be rendered or written.
func (p *placement) unwritten() (clusters []string) {
	for _, cluster := range p.absent {
		if !p.works[cluster].isGoing() {
			clusters = append(clusters, cluster)
		}
	}
	slices.Sort(clusters)
	return clusters
}

// applied returns the condition ManifestworkApplied.
func (s *snapshot) applied(failed selected.Errors) metav1.Condition {
	cond := metav1.Condition{Type: fleet.ConditionManifestworkApplied, Status: metav1.ConditionFalse}
	sum := s.set.Status.Summary
	cond.Message = fmt.Sprintf("%d of %s applied", sum.Applied, text.Count(sum.Total, "work"))
	switch notApplied := s.notApplied(); {
	case len(failed) > 0:
		cond.Reason, cond.Message = fleet.ReasonNotAsExpected, text.Message(failed.AsError("work").Error())
	case sum.DesiredTotal == 0:
		cond.Reason, cond.Message = fleet.ReasonPlacementDecisionEmpty, "no clusters are selected"
	case len(notApplied) > 0:
		cond.Reason = fleet.ReasonNotAsExpected
		cond.Message += fmt.Sprintf("; the ManifestWorks %s say what is wrong", text.FirstFew(notApplied))
	case sum.Total == 0 || sum.Applied < sum.Total:
		cond.Reason = fleet.ReasonProcessing
	default:
		cond.Status, cond.Reason = metav1.ConditionTrue, fleet.ReasonAsExpected
	}
	return cond
}

// notApplied returns the works that their agents could not apply.
func (s *snapshot) notApplied() (names []string) {
	for _, p := range s.placements {
		for _, cluster := range sortedKeys(p.works) {
			if w := p.works[cluster]; w.DeletionTimestamp.IsZero() && isFalse(w.current(fleet.ConditionApplied)) {
				names = append(names, w.Namespace+"/"+w.Name)
			}
		}
	}
	return names
}
