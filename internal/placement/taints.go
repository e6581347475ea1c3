package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// CheckTolerations returns the first toleration of a Placement that is invalid; nil if none is. The schema of Placements checks keys,
// effects and lengths.
func CheckTolerations(spec *clusterv1beta1.PlacementSpec) *Misconfiguration {
	for i, toleration := range spec.Tolerations {
		if err := checkToleration(toleration); err != nil {
			return misconfigured(partToleration, "spec.tolerations[%d].%v", i, err)
		}
	}
	return nil
}

// checkToleration returns what is invalid in a toleration.
func checkToleration(t clusterv1beta1.Toleration) error {
	switch t.Operator {
	case clusterv1beta1.TolerationOpExists:
		if t.Value != "" {
			return fmt.Errorf("value: %q must be empty, as the operator is %s", t.Value, t.Operator)
		}
	case "", clusterv1beta1.TolerationOpEqual:
		if t.Key == "" {
			return errors.New("operator: must be Exists, as the key is empty")
		}
	default:
		return fmt.Errorf("operator: %q is neither %s nor %s",
			t.Operator, clusterv1beta1.TolerationOpExists, clusterv1beta1.TolerationOpEqual)
	}
	return nil
}

// untolerated has the first taint of each effect that a profile does not tolerate; nil for none.
type untolerated struct {
	noSelect       *clusterv1.Taint // the cluster is no candidate
	noSelectIfNew  *clusterv1.Taint // the cluster is a candidate of placements that have selected it
	preferNoSelect *clusterv1.Taint // the cluster ranks behind all others
}

func (pr *profile) untoleratedTaints(c *cluster, now time.Time) untolerated {
	var t untolerated
	taints := c.taints()
	for i := range taints {
		taint := &taints[i]
		if tolerated, _ := pr.tolerates(taint, now); tolerated {
			continue
		}
		switch taint.Effect {
		case clusterv1.TaintEffectPreferNoSelect:
			t.preferNoSelect = cmp.Or(t.preferNoSelect, taint)
		case clusterv1.TaintEffectNoSelectIfNew:
			t.noSelectIfNew = cmp.Or(t.noSelectIfNew, taint)
		default:
			t.noSelect = cmp.Or(t.noSelect, taint)
		}
	}
	return t
}

// tolerates reports whether a taint is tolerated, and until when; zero is without end.
func (pr *profile) tolerates(taint *clusterv1.Taint, now time.Time) (tolerated bool, until time.Time) {
	for i := range pr.tolerations {
		toleration := &pr.tolerations[i]
		if !matches(toleration, taint) {
			continue
		}
		if toleration.TolerationSeconds == nil {
			return true, time.Time{}
		}
		expires := taint.TimeAdded.Add(seconds(*toleration.TolerationSeconds))
		if now.Before(expires) && expires.After(until) {
			tolerated, until = true, expires
		}
	}
	return tolerated, until
}

// seconds converts a number of seconds; those that a Duration cannot have become the longest or shortest one.
func seconds(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	return time.Duration(max(min(n, most), -most)) * time.Second
}

func matches(toleration *clusterv1beta1.Toleration, taint *clusterv1.Taint) bool {
	if toleration.Effect != "" && toleration.Effect != taint.Effect {
		return false
	}
	if toleration.Key != "" && toleration.Key != taint.Key {
		return false
	}
	return toleration.Operator == clusterv1beta1.TolerationOpExists || toleration.Value == taint.Value
}

func describeTaint(taint *clusterv1.Taint) string {
	value := ""
	if taint.Value != "" {
		value = "=" + taint.Value
	}
	return fmt.Sprintf("%s%s:%s", taint.Key, value, taint.Effect)
}

// filterTaints classifies a cluster by its taints.
func (pr *profile) filterTaints(c *cluster, now time.Time) taintStatus {
	t := pr.untoleratedTaints(c, now)
	return taintStatus{
		tolerated:      t.noSelect == nil && t.noSelectIfNew == nil,
		noSelectIfNew:  t.noSelect == nil && t.noSelectIfNew != nil,
		preferNoSelect: t.preferNoSelect != nil,
	}
}
