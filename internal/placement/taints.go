package placement

import (
	"errors"
	"fmt"
	"math"
	"time"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// checkToleration refuses what cannot match anything sensible.
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

// untolerated is how far the taints of a cluster are tolerated.
type untolerated struct {
	noSelect       *clusterv1.Taint // the first taint that keeps the cluster out
	noSelectIfNew  *clusterv1.Taint // the first that keeps it out unless it is selected already
	preferNoSelect *clusterv1.Taint // the first that ranks it behind all others
}

func (s *profile) untoleratedTaints(c *cluster, now time.Time) untolerated {
	var t untolerated
	taints := c.taints()
	for i := range taints {
		taint := &taints[i]
		if tolerated, _ := s.tolerates(taint, now); tolerated {
			continue
		}
		switch taint.Effect {
		case clusterv1.TaintEffectPreferNoSelect:
			t.preferNoSelect = firstTaint(t.preferNoSelect, taint)
		case clusterv1.TaintEffectNoSelectIfNew:
			t.noSelectIfNew = firstTaint(t.noSelectIfNew, taint)
		default:
			t.noSelect = firstTaint(t.noSelect, taint)
		}
	}
	return t
}

// tolerates reports until when a taint is tolerated; zero is for ever.
func (s *profile) tolerates(taint *clusterv1.Taint, now time.Time) (tolerated bool, until time.Time) {
	for i := range s.tolerations {
		toleration := &s.tolerations[i]
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

// seconds is the longest or shortest Duration there is for numbers that go beyond.
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

func firstTaint(one, other *clusterv1.Taint) *clusterv1.Taint {
	if one != nil {
		return one
	}
	return other
}

func describeTaint(taint *clusterv1.Taint) string {
	value := ""
	if taint.Value != "" {
		value = "=" + taint.Value
	}
	return fmt.Sprintf("%s%s:%s", taint.Key, value, taint.Effect)
}
