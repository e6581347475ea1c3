// Package healthprobe decides whether an add-on works by what managed clusters report of its objects. It
// is pure: it says what is to be reported, and what follows from the report.
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

// Feedback is what has to be reported of an object for its health to be known, together with what the author of the add-on asks
// for: of the entries in manifestConfigs that are about an object, one alone says what is reported. ok is false if the
// health does not depend on the object.
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

// checks tells whether a mode looks at the objects of a kind.
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

// merge adds rules to others. Of two values of one name, which an agent would refuse, the first counts.
func merge(kind schema.GroupVersionKind, rules, more []workv1.FeedbackRule) []workv1.FeedbackRule {
	names := map[string]bool{}
	for _, rule := range rules {
		note(names, kind, rule)
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
		note(names, kind, rule)
		rules = append(rules, rule)
	}
	return rules
}

func note(names map[string]bool, kind schema.GroupVersionKind, rule workv1.FeedbackRule) {
	paths := rule.JSONPaths
	if rule.Type == workv1.WellKnownStatusType {
		paths, _ = feedback.WellKnown(kind)
	}
	for _, path := range paths {
		names[path.Name] = true
	}
}
