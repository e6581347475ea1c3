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

// selection is which clusters are candidates and how they score by themselves: what placements of equal predicates,
// tolerations and prioritizers share, parsed once.
type selection struct {
	signature   string
	predicates  []predicate
	tolerations []clusterv1beta1.Toleration
	sources     []source
	cel         bool
	timed       bool                     // whether a toleration expires
	measures    [len(resourceNames)]bool // the resources that sources compare
	users       int                      // placements
}

// predicate is one of spec.predicates; all that it has must match.
type predicate struct {
	labels labels.Selector
	claims labels.Selector
	cel    *celselector.Selector
}

// sign tells selections apart.
func sign(spec *clusterv1beta1.PlacementSpec, sources []source) (string, error) {
	parts := []any{spec.Predicates, spec.Tolerations}
	for _, source := range sources {
		parts = append(parts, source.name, source.weight)
	}
	signature, err := json.Marshal(parts)
	return string(signature), err
}

func newSelection(signature string, spec *clusterv1beta1.PlacementSpec, sources []source) (*selection, *Misconfiguration) {
	s := &selection{signature: signature, tolerations: spec.Tolerations, sources: sources}
	for i, toleration := range spec.Tolerations {
		if err := checkToleration(toleration); err != nil {
			return nil, misconfigured(partToleration, "spec.tolerations[%d].%v", i, err)
		}
		s.timed = s.timed || toleration.TolerationSeconds != nil
	}
	for i := range spec.Predicates {
		parsed, err := parsePredicate(&spec.Predicates[i].RequiredClusterSelector)
		if err != nil {
			return nil, misconfigured(partPredicate, "spec.predicates[%d].requiredClusterSelector.%v", i, err)
		}
		s.predicates = append(s.predicates, parsed)
		s.cel = s.cel || parsed.cel != nil
	}
	for _, source := range sources {
		if source.addOn == nil {
			s.measures[source.resource] = true
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

// match tells whether a cluster meets any of the predicates, and adds up what CEL costs.
func (s *selection) match(c *cluster, now time.Time, costs *celselector.Costs) bool {
	for i := range s.predicates {
		if s.predicates[i].match(c, now, costs) == nil {
			return true
		}
	}
	return len(s.predicates) == 0
}

// matchWithoutCEL tells whether a cluster meets any of the predicates, where that is certain by its labels and claims.
func (s *selection) matchWithoutCEL(c *cluster) (matched, certain bool) {
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

// mismatch is why the cluster meets none of the predicates. Once that has cost as much as it may, CEL is not asked again.
func (s *selection) mismatch(c *cluster, now time.Time, costs *celselector.Costs) string {
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
		if scores := c.score(name); scores != nil && !stale(scores, now) {
			return scores.Status.Scores
		}
		return nil
	}, costs)
}

// stale scores count as none.
func stale(scores *clusterv1alpha1.AddOnPlacementScore, now time.Time) bool {
	until := scores.Status.ValidUntil
	return until != nil && !until.After(now)
}

// readsScore tells whether an AddOnPlacementScore of that name matters. CEL may ask for any.
func (s *selection) readsScore(name string) bool {
	if s.cel {
		return true
	}
	for i := range s.sources {
		if s.sources[i].addOn != nil && s.sources[i].addOn.ResourceName == name {
			return true
		}
	}
	return false
}

// deadline is when time changes what a cluster is to this selection at the earliest: when a toleration of one of its
// taints, or one of its scores, expires. Zero is never.
func (s *selection) deadline(c *cluster, now time.Time) time.Time {
	var deadline time.Time
	if s.timed {
		taints := c.taints()
		for i := range taints {
			_, until := s.tolerates(&taints[i], now)
			deadline = earliest(deadline, until)
		}
	}
	for _, scores := range c.scores {
		if scores.Status.ValidUntil != nil && !stale(scores, now) && s.readsScore(scores.Name) {
			deadline = earliest(deadline, scores.Status.ValidUntil.Time)
		}
	}
	return deadline
}

// narrow returns lists of clusters outside of which no predicate matches, when the indexes know fewer than limit.
func (s *selection) narrow(byLabel, byClaim index, limit int) ([][]int32, bool) {
	if len(s.predicates) == 0 {
		return nil, false
	}
	var all [][]int32
	for _, predicate := range s.predicates {
		lists, size, ok := byLabel.narrowest(predicate.labels)
		if others, count, indexed := byClaim.narrowest(predicate.claims); indexed && (!ok || count < size) {
			lists, size, ok = others, count, true
		}
		if limit -= size; !ok || limit < 0 {
			return nil, false
		}
		all = append(all, lists...)
	}
	return all, true
}

// earliest is the earlier of two times, of which zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
