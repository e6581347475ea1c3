package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// hookTimeout is how long a removal waits for a cluster that is not available or denied.
const hookTimeout = 10 * time.Minute

// isNeeded reports whether the add-on stays because others need it. A deadline that an administrator has set ends that.
func (p *planner) isNeeded() bool {
	d, _ := p.given()
	return len(p.Dependents) > 0 && !d.passed(p.Now)
}

// stay leaves everything as it is, and reports what the removal waits for.
func (p *planner) stay() {
	p.Finalizers = p.present()
	d, _ := p.given()
	p.Conditions = append(p.Conditions, falseCondition(fleet.ConditionHookManifestCompleted, fleet.ReasonHookManifestIsNotCompleted,
		fmt.Sprintf("The add-on stays as long as other add-ons on the cluster need it; delete these, too: %s%s",
			strings.Join(p.Dependents, ", "), p.until(d))))
}

// remove runs the hooks, and then deletes what is not garbage-collected. Until the hooks are done, everything else stays.
func (p *planner) remove() {
	managed, hosting := p.managedSide(), p.hostingSide()
	var pending, abandoned []string
	hooked := false
	for _, s := range []side{managed, hosting} {
		if !s.preDelete.isOn(p.Installation.AddOn) {
			continue
		}
		hooked = true
		before := len(p.Create)
		run := p.hooks(s)
		if run.done {
			continue
		}
		gaveUp, note := p.wait(s)
		if gaveUp {
			p.Create = p.Create[:before]
			abandoned = append(abandoned, run.message)
			continue
		}
		pending = append(pending, run.message+note)
	}
	if len(pending) > 0 {
		p.Finalizers = p.present()
		p.Conditions = append(p.Conditions, falseCondition(fleet.ConditionHookManifestCompleted, fleet.ReasonHookManifestIsNotCompleted,
			"The add-on stays until its pre-delete hooks are done. "+strings.Join(pending, ". ")))
		return
	}
	switch {
	case len(abandoned) > 0:
		p.Conditions = append(p.Conditions, falseCondition(fleet.ConditionHookManifestCompleted, fleet.ReasonHookManifestIsNotCompleted,
			"The removal goes on without the pre-delete hooks, as the time for them is over. "+strings.Join(abandoned, ". ")))
	case hooked:
		p.Conditions = append(p.Conditions, trueCondition(fleet.ConditionHookManifestCompleted, fleet.ReasonHookManifestIsCompleted,
			"The pre-delete hooks of the add-on are done"))
	}
	p.leaveHosting(hosting)
}

// leaveHosting deletes the works on hosting clusters, and waits for those on the present one to be gone.
func (p *planner) leaveHosting(hosting side) {
	remaining := false
	for _, w := range p.works {
		if !w.Hosting {
			continue
		}
		remaining = remaining || hosting.cluster != nil && w.Namespace == hosting.namespace
		if w.DeletionTimestamp.IsZero() && !slices.Contains(p.Delete, w.ManifestWork) {
			p.Delete = append(p.Delete, w.ManifestWork)
		}
	}
	if !remaining || !finalizers[2].isOn(p.Installation.AddOn) || p.isLost(hosting.cluster) {
		return
	}
	p.keepCleanup()
	note := ""
	if !attended(hosting.cluster) {
		_, note = p.wait(hosting)
	}
	p.Conditions = append(p.Conditions, falseCondition(fleet.ConditionHostingManifestApplied, fleet.ReasonAddOnManifestAppliedFailed,
		fmt.Sprintf("What the add-on has on the hosting cluster %s is being deleted%s", hosting.namespace, note)))
}

// isLost reports whether nobody cleans up a cluster any more, or not in time.
func (p *planner) isLost(cluster *clusterv1.ManagedCluster) bool {
	return managedcluster.CutOff(cluster) || !attended(cluster) && p.deadline(cluster).passed(p.Now)
}

// keepCleanup keeps the finalizer for the hosting cluster, under the name that the add-on has it.
func (p *planner) keepCleanup() {
	for _, name := range p.Installation.AddOn.Finalizers {
		if name == fleet.FinalizerHostingManifestsCleanup || name == fleet.DeprecatedFinalizerHostingManifestsCleanup {
			p.Finalizers = append(p.Finalizers, name)
		}
	}
}

// wait reports whether the removal goes on without a cluster. If not, note says when it will, or how an administrator can make it.
func (p *planner) wait(s side) (gaveUp bool, note string) {
	d := p.deadline(s.cluster)
	if d.passed(p.Now) {
		return true, ""
	}
	switch {
	case managedcluster.Denied(s.cluster):
		note = fmt.Sprintf("; cluster %s is denied", s.namespace)
	case !available(s.cluster):
		note = fmt.Sprintf("; cluster %s is not available", s.namespace)
	}
	return false, note + p.until(d)
}

// until returns a note that says when the removal goes on, or how an administrator can make it, and makes the add-on due then.
func (p *planner) until(d deadline) (note string) {
	if d.invalid != "" {
		note = "; " + d.invalid
	}
	if d.at.IsZero() {
		addOn := p.Installation.AddOn
		return note + fmt.Sprintf("; to remove the add-on all the same: kubectl annotate --overwrite managedclusteraddon -n %s %s %s=0s",
			addOn.Namespace, addOn.Name, fleet.AnnotationPreDeleteTimeout)
	}
	p.requeueAfter(d.at.Sub(p.Now))
	return note + "; the hub removes the add-on all the same at " + d.at.UTC().Format(time.RFC3339)
}

// requeueAfter makes the add-on due after at most that time.
func (p *planner) requeueAfter(after time.Duration) {
	if p.RequeueAfter == 0 || after < p.RequeueAfter {
		p.RequeueAfter = after
	}
}

// deadline is when a removal goes on without its hooks. A zero at means never.
type deadline struct {
	at time.Time
	// invalid says what is wrong with the value of the annotation.
	invalid string
}

func (d deadline) passed(now time.Time) bool {
	return !d.at.IsZero() && !now.Before(d.at)
}

// given returns the deadline that the annotation sets, counted from the deletion.
func (p *planner) given() (d deadline, set bool) {
	timeout, set, invalid := p.timeout()
	if !set {
		return deadline{invalid: invalid}, false
	}
	return deadline{at: p.Installation.AddOn.DeletionTimestamp.Add(timeout)}, true
}

// deadline returns when a removal stops waiting for the cluster: as the annotation sets it, or else hookTimeout after the cluster was
// last attended.
func (p *planner) deadline(cluster *clusterv1.ManagedCluster) deadline {
	d, set := p.given()
	if set || attended(cluster) {
		return d
	}
	if denialUnnoticed(cluster) {
		p.requeueAfter(time.Minute)
		return deadline{invalid: d.invalid}
	}
	since := p.Installation.AddOn.DeletionTimestamp.Time
	if lost := unattendedSince(cluster); lost.After(since) {
		since = lost
	}
	return deadline{at: since.Add(hookTimeout), invalid: d.invalid}
}

// attended reports whether the agent of a cluster works, and gets new works. A denial alone leaves a cluster available.
func attended(cluster *clusterv1.ManagedCluster) bool {
	return available(cluster) && !managedcluster.Denied(cluster)
}

// denialUnnoticed reports whether the hub has not dealt with the denial of a cluster yet, so that it is not known when that was.
func denialUnnoticed(cluster *clusterv1.ManagedCluster) bool {
	return managedcluster.Denied(cluster) && meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionHubAccepted)
}

// unattendedSince returns when a cluster that is not attended last was; a zero time if it is not known.
func unattendedSince(cluster *clusterv1.ManagedCluster) (since time.Time) {
	if !available(cluster) {
		since = transition(cluster, fleet.ConditionClusterAvailable)
	}
	if !managedcluster.Denied(cluster) {
		return since
	}
	denied := transition(cluster, fleet.ConditionHubAccepted)
	if available(cluster) || denied.Before(since) {
		return denied
	}
	return since
}

// transition returns when a condition of a cluster got its status; a zero time if there is no condition.
func transition(cluster *clusterv1.ManagedCluster, condition string) time.Time {
	if c := meta.FindStatusCondition(cluster.Status.Conditions, condition); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// timeout returns the value of the annotation of the add-on, or else of its ClusterManagementAddOn. Once that is deleted, the value that
// it had counts.
func (p *planner) timeout() (timeout time.Duration, set bool, invalid string) {
	value, ok := p.Installation.AddOn.Annotations[fleet.AnnotationPreDeleteTimeout]
	switch {
	case !ok && p.CMA != nil:
		value, ok = p.CMA.Annotations[fleet.AnnotationPreDeleteTimeout]
	case !ok:
		value, ok = p.Installation.AddOn.Annotations[fleet.AnnotationDefaultPreDeleteTimeout]
	}
	if !ok {
		return 0, false, ""
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout < 0 {
		return 0, false, fmt.Sprintf("the annotation %s=%q is no duration, write one such as 30m or 0s", fleet.AnnotationPreDeleteTimeout, value)
	}
	return timeout, true, ""
}
