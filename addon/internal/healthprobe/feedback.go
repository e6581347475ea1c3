// Package healthprobe determines from what managed clusters report of the objects of an add-on whether the add-on works. It is pure: it
// returns which status has to be reported, and the condition that follows from a report.
package healthprobe

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/addon"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/ready"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/manifest/feedback"
)

var (
	deployment = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	daemonSet  = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
)

// Feedback returns the rules for the status that has to be reported of an object, together with the rules of the add-on's author: only
// one entry in manifestConfigs decides what is reported of an object. ok is false if the health does not depend on the object.
func Feedback(health addon.Health, kind schema.GroupVersionKind, object workv1.ResourceIdentifier,
	authored []workv1.FeedbackRule) (rules []workv1.FeedbackRule, ok bool) {
	rules = needed(health, kind, object)
	if len(rules) == 0 {
		return nil, false
	}
	return merge(kind, rules, authored), true
}

func needed(health addon.Health, kind schema.GroupVersionKind, object workv1.ResourceIdentifier) (rules []workv1.FeedbackRule) {
	switch {
	case health.Mode == addon.HealthProbes:
		for i := range health.Probes {
			if manifest.Matches(health.Probes[i].Resource, object) {
				rules = append(rules, health.Probes[i].Feedback...)
			}
		}
		return merge(kind, nil, rules)
	case !checks(health.Mode, kind.GroupKind()):
		return nil
	case kind.GroupKind() == deployment:
		return ready.DeploymentFeedback()
	default:
		return ready.DaemonSetFeedback()
	}
}

// checks reports whether a mode checks the objects of a kind.
func checks(mode addon.HealthMode, kind schema.GroupKind) bool {
	switch mode {
	case addon.HealthDeployments:
		return kind == deployment
	case addon.HealthWorkloads:
		return kind == deployment || kind == daemonSet
	default:
		return false
	}
}

// merge appends rules. Of two values with the same name, which an agent would refuse, the first is kept.
func merge(kind schema.GroupVersionKind, rules, more []workv1.FeedbackRule) []workv1.FeedbackRule {
	names := map[string]bool{}
	for _, rule := range rules {
		addNames(names, kind, rule)
	}
	for _, rule := range more {
		if rule.Type == workv1.WellKnownStatusType &&
			slices.ContainsFunc(rules, func(r workv1.FeedbackRule) bool { return r.Type == rule.Type }) {
			continue
		}
		if rule.Type == workv1.JSONPathsType {
			rule.JSONPaths = slices.DeleteFunc(slices.Clone(rule.JSONPaths), func(p workv1.JSONPath) bool { return names[p.Name] })
			if len(rule.JSONPaths) == 0 {
				continue
			}
		}
		addNames(names, kind, rule)
		rules = append(rules, rule)
	}
	return rules
}

func addNames(names map[string]bool, kind schema.GroupVersionKind, rule workv1.FeedbackRule) {
	paths := rule.JSONPaths
	if rule.Type == workv1.WellKnownStatusType {
		paths, _ = feedback.WellKnown(kind)
	}
	for _, path := range paths {
		names[path.Name] = true
	}
}
