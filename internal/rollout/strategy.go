package rollout

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// Validate returns what is invalid in a strategy, for admission: values that cannot be parsed, and numbers that no rollout can use. Of
// the blocks all, progressive and progressivePerGroup it validates the one of the type, as the others have no effect. What depends on the
// number of clusters is left to Plan.Notes, and so is a maxConcurrency of 0, which the API allows.
func Validate(path *field.Path, strategy clusterv1alpha1.RolloutStrategy) field.ErrorList {
	_, problems := parseStrategy(path, strategy, nil)
	errs := problems.unreadable
	for _, clamped := range problems.clamped {
		errs = append(errs, field.Invalid(clamped.path, clamped.written, clamped.right))
	}
	return errs
}

// HasDeadline reports whether a cluster that does not get on with the change is timed out some time.
func HasDeadline(strategy clusterv1alpha1.RolloutStrategy) bool {
	policy, _ := parseStrategy(field.NewPath("rolloutStrategy"), strategy, nil)
	return policy.deadline > 0
}

// policy is a parsed strategy.
type policy struct {
	kind           clusterv1alpha1.RolloutType
	mandatory      []mandatoryGroup
	soak           time.Duration
	deadline       time.Duration // 0 is none.
	maxConcurrency intOrPercent
	maxFailures    intOrPercent
}

type mandatoryGroup struct {
	clusterv1alpha1.MandatoryDecisionGroup
	path *field.Path
}

func (m mandatoryGroup) matches(group Group) bool {
	if m.GroupName != "" {
		return m.GroupName == group.Name
	}
	return m.GroupIndex == group.Index
}

func (m mandatoryGroup) String() string {
	if m.GroupName != "" {
		return fmt.Sprintf("named %q", m.GroupName)
	}
	return fmt.Sprintf("with index %d", m.GroupIndex)
}

// problems are what is wrong with a strategy, whatever the clusters are.
type problems struct {
	unreadable field.ErrorList
	clamped    []clamped
}

// clamped is a value out of its range.
type clamped struct {
	path    *field.Path
	written any
	used    string // The value that is used instead.
	right   string // What would be right.
}

func (c clamped) String() string {
	return fmt.Sprintf("%s: %v counts as %s: %s", c.path, c.written, c.used, c.right)
}

// parseStrategy parses the block of the strategy that belongs to its type.
func parseStrategy(
	path *field.Path, strategy clusterv1alpha1.RolloutStrategy, defaultConcurrency *intstr.IntOrString,
) (policy, problems) {
	var p problems
	kind := strategy.Type
	if kind == "" {
		kind = clusterv1alpha1.All
	}
	result := policy{kind: kind}
	switch kind {
	case clusterv1alpha1.All:
		if block := strategy.All; block != nil {
			p.parseConfig(path.Child("all"), block.RolloutConfig, &result)
		}
		result.soak = 0 // the strategy All has no soak time
	case clusterv1alpha1.Progressive:
		block := strategy.Progressive
		if block == nil {
			block = &clusterv1alpha1.RolloutProgressive{}
		}
		at := path.Child("progressive")
		p.parseConfig(at, block.RolloutConfig, &result)
		p.parseMandatoryGroups(at, block.MandatoryDecisionGroups, &result)
		result.maxConcurrency = p.parseMaxConcurrency(at, block.MaxConcurrency, defaultConcurrency)
	case clusterv1alpha1.ProgressivePerGroup:
		if block := strategy.ProgressivePerGroup; block != nil {
			at := path.Child("progressivePerGroup")
			p.parseConfig(at, block.RolloutConfig, &result)
			p.parseMandatoryGroups(at, block.MandatoryDecisionGroups, &result)
		}
	default:
		p.unreadable = append(p.unreadable, field.NotSupported(path.Child("type"), kind, []clusterv1alpha1.RolloutType{
			clusterv1alpha1.All, clusterv1alpha1.Progressive, clusterv1alpha1.ProgressivePerGroup}))
	}
	return result, p
}

func (p *problems) parseConfig(path *field.Path, config clusterv1alpha1.RolloutConfig, into *policy) {
	into.soak = p.parseMinSuccessTime(path.Child("minSuccessTime"), config.MinSuccessTime)
	into.deadline = p.parseProgressDeadline(path.Child("progressDeadline"), config.ProgressDeadline)
	if config.MaxFailures != nil {
		into.maxFailures = p.parseIntOrPercent(path.Child("maxFailures"), *config.MaxFailures)
	}
}

func (p *problems) parseMinSuccessTime(path *field.Path, written string) time.Duration {
	if written == "" {
		return 0
	}
	soak, err := time.ParseDuration(written)
	switch {
	case err != nil:
		p.invalid(path, written, "write a time such as 5m or 1h30m, or 0 for none")
	case soak < 0:
		p.clamp(path, written, "0", "a time is not negative; write one such as 5m, or 0 for none")
	}
	return max(soak, 0)
}

func (p *problems) parseProgressDeadline(path *field.Path, written string) time.Duration {
	const none = "None"
	if written == "" || written == none {
		return 0
	}
	deadline, err := time.ParseDuration(written)
	switch {
	case err != nil:
		p.invalid(path, written, "write a time such as 10m or 2h, or None to wait without limit")
	case deadline <= 0:
		p.clamp(path, written, none, "no cluster can keep a deadline of no time; write one such as 10m, or None to wait without limit")
	}
	return max(deadline, 0)
}

// parseMaxConcurrency returns the default without a path: it is not part of the strategy, so that nothing is noted about it.
func (p *problems) parseMaxConcurrency(block *field.Path, written, byDefault *intstr.IntOrString) intOrPercent {
	switch {
	case written != nil:
		return p.parseIntOrPercent(block.Child("maxConcurrency"), *written)
	case byDefault != nil:
		concurrency := p.parseIntOrPercent(field.NewPath("clustersPerDecisionGroup"), *byDefault)
		concurrency.path = nil
		return concurrency
	default:
		return intOrPercent{value: 100, percent: true}
	}
}

func (p *problems) parseMandatoryGroups(block *field.Path, written clusterv1alpha1.MandatoryDecisionGroups, into *policy) {
	for i, group := range written.MandatoryDecisionGroups {
		path := block.Child("mandatoryDecisionGroups").Index(i)
		if group.GroupName == "" && group.GroupIndex < 0 {
			p.clamp(path.Child("groupIndex"), group.GroupIndex, "no group", "the indices of decision groups begin at 0")
			continue
		}
		into.mandatory = append(into.mandatory, mandatoryGroup{MandatoryDecisionGroup: group, path: path})
	}
}

func (p *problems) invalid(path *field.Path, written any, right string) {
	p.unreadable = append(p.unreadable, field.Invalid(path, written, right))
}

func (p *problems) clamp(path *field.Path, written any, used, right string) {
	p.clamped = append(p.clamped, clamped{path: path, written: written, used: used, right: right})
}
