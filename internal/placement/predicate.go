package placement

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// predicate is one of spec.predicates. A cluster matches it if it matches all of its selectors.
type predicate struct {
	labels labels.Selector
	claims labels.Selector
	cel    *celselector.Selector
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
	if parsed.labels, err = budget.SelectorOf(byLabels); err != nil {
		return predicate{}, fmt.Errorf("labelSelector: %w", err)
	}
	claims := &metav1.LabelSelector{MatchExpressions: byClaims.MatchExpressions}
	if parsed.claims, err = budget.SelectorOf(claims); err != nil {
		return predicate{}, fmt.Errorf("claimSelector: %w", err)
	}
	return parsed, nil
}

// match reports whether a cluster matches one of the predicates, and adds what CEL expressions cost to costs, which are nil for profiles
// without any.
func (pr *profile) match(c *cluster, now time.Time, costs *celselector.Costs) bool {
	cel := c.forCEL(now, costs)
	for i := range pr.predicates {
		if pr.predicates[i].match(c, cel) == nil {
			return true
		}
	}
	return len(pr.predicates) == 0
}

// matchWithoutCEL reports whether a cluster matches one of the predicates, as far as labels and claims decide that. If certain is false, it
// depends on a CEL expression.
func (pr *profile) matchWithoutCEL(c *cluster) (matched, certain bool) {
	certain = true
	for i := range pr.predicates {
		p := &pr.predicates[i]
		if !p.labels.Matches(c.labels()) || !p.claims.Matches(c.claims) {
			continue
		}
		if p.cel == nil {
			return true, true
		}
		certain = false
	}
	return len(pr.predicates) == 0, certain
}

// mismatchReason says why the cluster matches none of the predicates. Once the costs have exceeded their limit, CEL expressions are not
// evaluated any more.
func (pr *profile) mismatchReason(c *cluster, now time.Time, costs *celselector.Costs) string {
	var reasons []string
	cel := c.forCEL(now, costs)
	for i := range pr.predicates {
		err := errCEL
		if !costs.Exceeded() {
			err = pr.predicates[i].match(c, cel)
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

func (p *predicate) match(c *cluster, cel *celselector.Cluster) error {
	if !p.labels.Matches(c.labels()) {
		return errLabels
	}
	if !p.claims.Matches(c.claims) {
		return errClaims
	}
	if p.cel == nil {
		return nil
	}
	return p.cel.Matches(cel)
}

// forCEL is the cluster for all CEL expressions of a profile; nil without costs, of profiles that have none.
func (c *cluster) forCEL(now time.Time, costs *celselector.Costs) *celselector.Cluster {
	if costs == nil {
		return nil
	}
	return celselector.NewCluster(c.object, func(name string) []clusterv1alpha1.AddOnPlacementScoreItem {
		if scores := c.score(name); scores != nil && !scoresExpired(scores, now) {
			return scores.Status.Scores
		}
		return nil
	}, costs)
}
