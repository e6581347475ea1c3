package placement

import (
	"encoding/json"
	"slices"
	"time"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// profile is the filters and scorers of placements with equal predicates, tolerations and prioritizers. Those of a class share it.
type profile struct {
	signature         string
	predicates        []predicate
	tolerations       []clusterv1beta1.Toleration
	scorers           []scorer
	cel               bool
	tolerationExpires bool                     // whether there is a toleration with tolerationSeconds
	usesResource      [len(resourceNames)]bool // by index of resourceNames: whether a scorer compares the resource
	usesScores        []string                 // names of the AddOnPlacementScores that scorers read
}

// profileSignature is equal for specs with equal profiles. Names of AddOnPlacementScores may have slashes, so that the name of a scorer
// alone is not unique.
func profileSignature(spec *clusterv1beta1.PlacementSpec, scorers []scorer) (string, error) {
	parts := []any{spec.Predicates, spec.Tolerations}
	for _, scorer := range scorers {
		parts = append(parts, scorer.name, scorer.plugin, scorer.weight)
	}
	signature, err := json.Marshal(parts)
	return string(signature), err
}

func newProfile(spec *clusterv1beta1.PlacementSpec, scorers []scorer) (*profile, *Misconfiguration) {
	signature, err := profileSignature(spec, scorers)
	if err != nil {
		return nil, misconfigured(partPlacement, "spec: %v", err)
	}
	s := &profile{signature: signature, tolerations: spec.Tolerations, scorers: scorers}
	if bad := CheckTolerations(spec); bad != nil {
		return nil, bad
	}
	for _, toleration := range spec.Tolerations {
		s.tolerationExpires = s.tolerationExpires || toleration.TolerationSeconds != nil
	}
	for i := range spec.Predicates {
		parsed, err := parsePredicate(&spec.Predicates[i].RequiredClusterSelector)
		if err != nil {
			return nil, misconfigured(partPredicate, "spec.predicates[%d].requiredClusterSelector.%v", i, err)
		}
		s.predicates = append(s.predicates, parsed)
		s.cel = s.cel || parsed.cel != nil
	}
	for _, scorer := range scorers {
		switch plugin := scorer.plugin.(type) {
		case resourceAllocatable:
			s.usesResource[plugin.resource] = true
		case addOnScore:
			s.usesScores = append(s.usesScores, plugin.ResourceName)
		}
	}
	return s, nil
}

// readsScore reports whether the profile may read AddOnPlacementScores of a name. CEL expressions may read any.
func (pr *profile) readsScore(name string) bool {
	return pr.cel || slices.Contains(pr.usesScores, name)
}

// readsResources reports whether a scorer compares resources.
func (pr *profile) readsResources() bool { return slices.Contains(pr.usesResource[:], true) }

// nextExpiry is when a toleration of one of the taints of a cluster, or one of its scores that the profile reads, expires next. Zero is
// never.
func (pr *profile) nextExpiry(c *cluster, now time.Time) time.Time {
	var deadline time.Time
	if pr.tolerationExpires {
		taints := c.taints()
		for i := range taints {
			_, until := pr.tolerates(&taints[i], now)
			deadline = earliest(deadline, until)
		}
	}
	for _, scores := range c.scores {
		if scores.Status.ValidUntil != nil && !scoresExpired(scores, now) && pr.readsScore(scores.Name) {
			deadline = earliest(deadline, scores.Status.ValidUntil.Time)
		}
	}
	return deadline
}

// earliest returns the earlier of two times, of which zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
