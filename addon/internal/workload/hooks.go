package workload

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/ownership"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Names of the reported values of hooks. The API server of the cluster provides the reason why a Job failed.
const (
	jobComplete      = "JobComplete" // well-known
	podPhase         = "PodPhase"    // well-known
	jobFailed        = "JobFailed"
	jobFailedMessage = "JobFailedMessage"
)

// hookFeedback returns the rules for what has to be reported of a hook; ok is false for other objects.
func hookFeedback(o *object, authored []workv1.FeedbackRule) (rules []workv1.FeedbackRule, ok bool) {
	if !o.hook {
		return nil, false
	}
	rules = []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}
	if o.GroupKind == job {
		rules = append(rules, workv1.FeedbackRule{Type: workv1.JSONPathsType, JSONPaths: []workv1.JSONPath{
			{Name: jobFailed, Path: `.status.conditions[?(@.type=="Failed")].status`},
			{Name: jobFailedMessage, Path: `.status.conditions[?(@.type=="Failed")].message`},
		}})
	}
	for _, rule := range authored {
		rule.JSONPaths = slices.DeleteFunc(slices.Clone(rule.JSONPaths), func(p workv1.JSONPath) bool {
			return slices.Contains([]string{jobComplete, podPhase, jobFailed, jobFailedMessage, "JobSucceeded", "PodReady"}, p.Name)
		})
		if rule.Type == workv1.JSONPathsType && len(rule.JSONPaths) > 0 {
			rules = append(rules, rule)
		}
	}
	return rules, true
}

// hookWork returns the work with the hooks of a side. Whatever of the add-on is to stay, hooks go with their work: the next removal would
// take a Job that stays for its own, and be done without running it.
func (p *planner) hookWork(s side, hooks []*object) *workv1.ManifestWork {
	addOn := p.Installation.AddOn
	name := fleet.AddOnPreDeleteWork(addOn.Name)
	if s.hosting {
		name = fleet.AddOnHostingPreDeleteWork(addOn.Name, addOn.Namespace)
	}
	w := p.base(s, nil, name)
	w.Spec = p.spec(hooks)
	w.Spec.DeleteOption = nil
	return w
}

// run is the state of the hooks of a side.
type run struct {
	done bool
	// message says what the removal waits for, and what to do about a failure.
	message string
}

// hooks runs the hooks of a side once. Hooks that have started stay as they are, because the pods of a Job cannot be changed.
func (p *planner) hooks(s side) run {
	w := p.hookWorkAt(s)
	switch {
	case s.cluster == nil:
		return run{done: true} // there is no cluster to run them on
	case managedcluster.CutOff(s.cluster):
		return run{done: true} // no agent is left to run them
	case p.Closed && w == nil && !s.hosting:
		return run{done: true} // they would have to be brought by a work in the namespace, which waits for the add-on to go
	case w != nil && !w.DeletionTimestamp.IsZero():
		return run{message: fmt.Sprintf("ManifestWork %s/%s of an earlier run is being deleted; the hooks run when it is gone", w.Namespace,
			w.Name)}
	case w != nil && p.isOfAnother(w):
		p.Delete = append(p.Delete, w.ManifestWork)
		return run{message: fmt.Sprintf("ManifestWork %s/%s is of an add-on that was there before; the hooks run when it is gone", w.Namespace,
			w.Name)}
	case w != nil:
		return w.progress()
	case p.Workload == nil:
		p.requeueAfter(rerender)
		return run{message: p.unknownHooks()}
	}
	hooks := p.at(s, true)
	if len(hooks) == 0 {
		return run{done: true}
	}
	if !s.takesNew() {
		return run{message: fmt.Sprintf("%s on cluster %s: to be started when the cluster is accepted again", names(hooks), s.namespace)}
	}
	p.Create = append(p.Create, p.hookWork(s, hooks))
	return run{message: fmt.Sprintf("%s on cluster %s: to be started", names(hooks), s.namespace)}
}

// rerender is when an add-on that is being deleted is called again for its hooks after an error, which may go away without an event.
const rerender = time.Minute

func (p *planner) unknownHooks() string {
	if p.Unrendered == nil {
		return "It is not known yet which hooks the add-on has"
	}
	return fmt.Sprintf("The hooks of the add-on are not known, because its manifests could not be made: %s", p.Unrendered)
}

// isOfAnother reports whether a work belongs to a deleted add-on of the same name.
func (p *planner) isOfAnother(w *work) bool {
	owner := slices.IndexFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == ownership.Kind })
	return owner >= 0 && w.OwnerReferences[owner].UID != p.Installation.AddOn.UID
}

func (p *planner) hookWorkAt(s side) *work {
	for _, w := range p.works {
		if w.Hook && w.Hosting == s.hosting && w.Namespace == s.namespace {
			return w
		}
	}
	return nil
}

// progress returns the state of the pre-delete hooks: they are done when the work is available, all Jobs are complete and all Pods have
// succeeded.
func (w *work) progress() run {
	var failed, waiting []string
	for o := range w.manifests {
		switch done, failure := w.hookResult(o); {
		case failure != "":
			failed = append(failed, fmt.Sprintf("%s (%s)", o, failure))
		case !done:
			waiting = append(waiting, o.String())
		}
	}
	slices.Sort(failed)
	slices.Sort(waiting)
	available, observed := w.observed(fleet.ConditionAvailable)
	switch {
	case len(failed) > 0:
		return run{message: fmt.Sprintf("On cluster %s failed: %s. Put right what they need, and delete ManifestWork %s/%s to have them run again",
			w.Namespace, text.FirstFew(failed), w.Namespace, w.Name)}
	case len(waiting) > 0:
		return run{message: fmt.Sprintf("%s on cluster %s: not done yet", text.FirstFew(waiting), w.Namespace)}
	case !observed || !meta.IsStatusConditionTrue(w.Status.Conditions, fleet.ConditionAvailable):
		if available != nil {
			return run{message: fmt.Sprintf("ManifestWork %s/%s is not available: %s", w.Namespace, w.Name, available.Message)}
		}
		return run{message: fmt.Sprintf("ManifestWork %s/%s is not applied yet", w.Namespace, w.Name)}
	}
	return run{done: true}
}

// hookResult returns the result of a hook. Other objects in the work are always done.
func (w *work) hookResult(o id) (done bool, failure string) {
	reported := w.reported(o)
	if reported == nil {
		return false, ""
	}
	if c := meta.FindStatusCondition(reported.Conditions, fleet.ConditionApplied); c != nil && c.Status == metav1.ConditionFalse {
		return false, c.Message
	}
	value := func(name string) string {
		for _, v := range reported.StatusFeedbacks.Values {
			if v.Name == name && v.Value.String != nil {
				return *v.Value.String
			}
		}
		return ""
	}
	switch o.GroupKind {
	case job:
		if value(jobFailed) == "True" {
			return false, cmp.Or(value(jobFailedMessage), "the Job has failed")
		}
		return value(jobComplete) == "True", ""
	case pod:
		if value(podPhase) == "Failed" {
			return false, "the Pod has failed"
		}
		return value(podPhase) == "Succeeded", ""
	default:
		return true, ""
	}
}

func names(objects []*object) string {
	all := make([]string, len(objects))
	for i, o := range objects {
		all[i] = o.String()
	}
	return text.FirstFew(all)
}
