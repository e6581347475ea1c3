package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// profile is the filters and scorers of placements with equal predicates, tolerations and prioritizers. It is parsed once for all of
// them.
type profile struct {
	signature         string
	predicates        []predicate
	tolerations       []clusterv1beta1.Toleration
	scorers           []scorer
	cel               bool
	tolerationExpires bool                     // whether there is a toleration with tolerationSeconds
	usesResource      [len(resourceNames)]bool // by index of resourceNames: whether a scorer compares the resource
	references        int                      // number of placements with the profile
}

// predicate is one of spec.predicates. A cluster matches it if it matches all of its selectors.
type predicate struct {
	labels labels.Selector
	claims labels.Selector
	cel    *celselector.Selector
}

// profileSignature is equal for specs with equal profiles.
func profileSignature(spec *clusterv1beta1.PlacementSpec, scorers []scorer) (string, error) {
	parts := []any{spec.Predicates, spec.Tolerations}
	for _, scorer := range scorers {
		parts = append(parts, scorer.name, scorer.weight)
	}
	signature, err := json.Marshal(parts)
	return string(signature), err
}

func newProfile(signature string, spec *clusterv1beta1.PlacementSpec, scorers []scorer) (*profile, *Misconfiguration) {
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
		if scorer.addOn == nil {
			s.usesResource[scorer.resource] = true
		}
	}
	return s, nil
}

func parsePredicate(selector *clusterv1beta1.ClusterSelector) (predicate, error) {
	parsed, err := parseSelectors(&selector.LabelSelector, &selector.ClaimSelector)
	if err != nil {
		return predicate{}, err
	}
	if expressions := selector.CelSelector.CelExpressions; len(expressions) > 0 {
		if parsed.cel, err = celselector.Compile(expressions); err != nil {
			return predicate{}, fmt.Errorf("celSelector.%w", err)
		}
	}
	return parsed, nil
}

func parseSelectors(byLabels *metav1.LabelSelector, byClaims *clusterv1beta1.ClusterClaimSelector) (parsed predicate, err error) {
	if parsed.labels, err = metav1.LabelSelectorAsSelector(byLabels); err != nil {
		return predicate{}, fmt.Errorf("labelSelector: %w", err)
	}
	claims := &metav1.LabelSelector{MatchExpressions: byClaims.MatchExpressions}
	if parsed.claims, err = metav1.LabelSelectorAsSelector(claims); err != nil {
		return predicate{}, fmt.Errorf("claimSelector: %w", err)
	}
	return parsed, nil
}

// match tells whether a cluster matches one of the predicates, and adds what CEL expressions cost to costs.
func (s *profile) match(c *cluster, now time.Time, costs *celselector.Costs) bool {
	for i := range s.predicates {
		if s.predicates[i].match(c, now, costs) == nil {
			return true
		}
	}
	return len(s.predicates) == 0
}

// matchWithoutCEL tells whether a cluster matches one of the predicates, as far as labels and claims tell. If certain is false, it
// depends on a CEL expression.
func (s *profile) matchWithoutCEL(c *cluster) (matched, certain bool) {
	certain = true
	for i := range s.predicates {
		p := &s.predicates[i]
		if !p.labels.Matches(c.labels()) || !p.claims.Matches(c.claims) {
			continue
		}
		if p.cel == nil {
			return true, true
		}
		certain = false
	}
	return len(s.predicates) == 0, certain
}

// mismatchReason says why the cluster matches none of the predicates. Once the costs have exceeded their limit, CEL expressions are not
// evaluated any more.
func (s *profile) mismatchReason(c *cluster, now time.Time, costs *celselector.Costs) string {
	var reasons []string
	for i := range s.predicates {
		err := errCEL
		if !costs.Exceeded() {
			err = s.predicates[i].match(c, now, costs)
		}
		if err != nil {
			reasons = append(reasons, fmt.Sprintf("spec.predicates[%d]: %v", i, err))
		}
	}
	return strings.Join(reasons, "; ")
}

var (
	errLabels = errors.New("its labels do not match")
	errClaims = errors.New("its claims do not match")
	errCEL    = errors.New("its labels or claims do not match, or a CEL expression does not hold; which one would cost too much to find out")
)

func (p *predicate) match(c *cluster, now time.Time, costs *celselector.Costs) error {
	if !p.labels.Matches(c.labels()) {
		return errLabels
	}
	if !p.claims.Matches(c.claims) {
		return errClaims
	}
	if p.cel == nil {
		return nil
	}
	return p.cel.Matches(c.object, func(name string) []clusterv1alpha1.AddOnPlacementScoreItem {
		if scores := c.score(name); scores != nil && !scoresExpired(scores, now) {
			return scores.Status.Scores
		}
		return nil
	}, costs)
}

// scoresExpired tells whether validUntil has passed. Expired scores count as 0.
func scoresExpired(scores *clusterv1alpha1.AddOnPlacementScore, now time.Time) bool {
	until := scores.Status.ValidUntil
	return until != nil && !until.After(now)
}

// readsScore tells whether the profile may read AddOnPlacementScores of a name. CEL expressions may read any.
func (s *profile) readsScore(name string) bool {
	if s.cel {
		return true
	}
	for i := range s.scorers {
		if s.scorers[i].addOn != nil && s.scorers[i].addOn.ResourceName == name {
			return true
		}
	}
	return false
}

// nextExpiry is when a toleration of one of the taints of a cluster, or one of its scores that the profile reads, expires next. Zero is
// never.
func (s *profile) nextExpiry(c *cluster, now time.Time) time.Time {
	var deadline time.Time
	if s.tolerationExpires {
		taints := c.taints()
		for i := range taints {
			_, until := s.tolerates(&taints[i], now)
			deadline = earliest(deadline, until)
		}
	}
	for _, scores := range c.scores {
		if scores.Status.ValidUntil != nil && !scoresExpired(scores, now) && s.readsScore(scores.Name) {
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
