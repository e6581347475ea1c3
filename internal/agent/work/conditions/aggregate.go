package conditions

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// isDerived reports whether a condition of a manifest comes from a rule or from the health of the object, and so has to go when
// neither sets it any more.
func isDerived(cond metav1.Condition) bool {
	return isOfRule(cond) || strings.HasPrefix(cond.Reason, fleet.ReasonHealthPrefix)
}

func isOfRule(cond metav1.Condition) bool {
	return strings.HasPrefix(cond.Reason, fleet.ReasonConditionRulePrefix)
}

// isAggregated reports whether a condition of a ManifestWork is one that ofManifests returned.
func isAggregated(cond metav1.Condition) bool {
	return cond.Reason == fleet.ReasonConditionRulesAggregated
}

// ofManifests returns the conditions of a ManifestWork that follow from those of its manifests, without times and
// generations, sorted by type. ruled are the types that rules are about: those follow from rules alone. open are those of which rules
// say nothing yet.
func ofManifests(manifests []workv1.ManifestCondition, ruled sets.Set[string], open openRules) []metav1.Condition {
	aggregated := aggregateRules(manifests, open)
	for _, cond := range aggregateHealth(manifests) {
		if !ruled.Has(cond.Type) && meta.FindStatusCondition(aggregated, cond.Type) == nil {
			aggregated = append(aggregated, cond)
		}
	}
	slices.SortFunc(aggregated, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return aggregated
}

// aggregateRules takes False for the whole if it is anywhere, then Unknown; of Progressing it takes True first. What is open is Unknown.
func aggregateRules(manifests []workv1.ManifestCondition, open openRules) (aggregated []metav1.Condition) {
	sources := map[string][]metav1.Condition{}
	for _, m := range manifests {
		for _, cond := range m.Conditions {
			if isOfRule(cond) {
				sources[cond.Type] = append(sources[cond.Type], cond)
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(sources)) {
		order := []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue}
		if kind == fleet.ConditionProgressing {
			order = []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionUnknown, metav1.ConditionFalse}
		}
		cond := aggregate(kind, sources[kind], order)
		if cond.Status == order[len(order)-1] && len(open[kind]) > 0 {
			cond.Status = metav1.ConditionUnknown
			cond.Message = fmt.Sprintf("The rules could not be evaluated yet for %s: %s", text.Count(len(open[kind]), "resource"),
				text.FirstFew(open[kind]))
		}
		aggregated = append(aggregated, cond)
	}
	return aggregated
}

// openRules names the resources for which the rules about a condition could not be evaluated, by the type of the condition: they do not
// exist, were not read yet, or are of a kind that the cluster does not know.
type openRules map[string][]string

// openRulesOf compares the rules with the conditions that the manifests have.
func openRulesOf(work *workv1.ManifestWork, results []Result) openRules {
	open := openRules{}
	for i := range results {
		r, has := &results[i], work.Status.ResourceStatus.Manifests[i].Conditions
		kinds := sets.New[string]()
		for _, rule := range r.conditionRules(work) {
			if kind := r.conditionOf(rule); kind != "" && meta.FindStatusCondition(has, kind) == nil {
				kinds.Insert(kind)
			}
		}
		for kind := range kinds {
			open[kind] = append(open[kind], nameOf(r.Manifest))
		}
	}
	return open
}

// conditionRules are those about the manifest, and those that may be if its resource is not known.
func (r *Result) conditionRules(work *workv1.ManifestWork) (rules []workv1.ConditionRule) {
	if r.Manifest.Resource != "" || r.Manifest.Kind == "" {
		return r.Query.ConditionRules
	}
	for i := range work.Spec.ManifestConfigs {
		if c := &work.Spec.ManifestConfigs[i]; mayBeAbout(c, r.Manifest) {
			rules = append(rules, c.ConditionRules...)
		}
	}
	return rules
}

// conditionOf is the type of the condition that a rule sets on the manifest; empty if it sets none.
func (r *Result) conditionOf(rule workv1.ConditionRule) string {
	switch {
	case rule.Type != workv1.WellKnownConditionsType:
		return rule.Condition
	case hasWellKnown(schema.GroupKind{Group: r.Manifest.Group, Kind: r.Manifest.Kind}, rule):
		return fleet.ConditionComplete
	default:
		return ""
	}
}

func aggregate(kind string, sources []metav1.Condition, order []metav1.ConditionStatus) metav1.Condition {
	winner := slices.MinFunc(sources, func(a, b metav1.Condition) int {
		return slices.Index(order, a.Status) - slices.Index(order, b.Status)
	})
	message := winner.Message
	if len(sources) > 1 {
		message = fmt.Sprintf("Aggregated from %d manifest conditions", len(sources))
	}
	return metav1.Condition{Type: kind, Status: winner.Status, Reason: fleet.ReasonConditionRulesAggregated, Message: message}
}

// aggregateHealth finds a work Progressing while anything in it is not applied or on its way, and Degraded while anything has
// failed.
func aggregateHealth(manifests []workv1.ManifestCondition) []metav1.Condition {
	var unapplied, progressing, degraded []workv1.ManifestCondition
	for _, m := range manifests {
		if !meta.IsStatusConditionTrue(m.Conditions, fleet.ConditionApplied) {
			unapplied = append(unapplied, m)
			continue
		}
		if meta.IsStatusConditionTrue(m.Conditions, fleet.ConditionProgressing) {
			progressing = append(progressing, m)
		}
		if meta.IsStatusConditionTrue(m.Conditions, fleet.ConditionDegraded) {
			degraded = append(degraded, m)
		}
	}
	return []metav1.Condition{
		found(fleet.ConditionProgressing, append(unapplied, progressing...), len(manifests), "are on their way",
			"All resources are as they should be"),
		found(fleet.ConditionDegraded, degraded, len(manifests), "have failed", "No resource has failed"),
	}
}

// found is a condition that is True if there are manifests of which it is. The message describes the first of them.
func found(kind string, of []workv1.ManifestCondition, all int, are, none string) metav1.Condition {
	cond := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: fleet.ReasonConditionRulesAggregated, Message: none}
	if len(of) == 0 {
		return cond
	}
	first := slices.MinFunc(of, func(a, b workv1.ManifestCondition) int {
		return int(a.ResourceMeta.Ordinal) - int(b.ResourceMeta.Ordinal)
	})
	cond.Status = metav1.ConditionTrue
	cond.Message = fmt.Sprintf("%d of %d resources %s: %s", len(of), all, are, describe(first, kind))
	if more := len(of) - 1; more > 0 {
		cond.Message += fmt.Sprintf("; and %d more", more)
	}
	return cond
}

// describe says what a manifest is waiting for.
func describe(m workv1.ManifestCondition, kind string) string {
	why := "it is not applied yet"
	if cond := meta.FindStatusCondition(m.Conditions, kind); cond != nil && cond.Status == metav1.ConditionTrue {
		why = cond.Message
	}
	return nameOf(m.ResourceMeta) + ": " + why
}

// nameOf is an object as a message names it.
func nameOf(m workv1.ManifestResourceMeta) string {
	if m.Namespace == "" {
		return m.Kind + " " + m.Name
	}
	return fmt.Sprintf("%s %s/%s", m.Kind, m.Namespace, m.Name)
}
