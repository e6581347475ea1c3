package frame

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
)

func node(role string, taints ...corev1.Taint) corev1.Node {
	n := corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
	n.Labels = map[string]string{"role": role}
	return n
}

// CM-18, O3
func TestReplicas(t *testing.T) {
	t.Parallel()
	tainted := corev1.Taint{Key: "control", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	soft := corev1.Taint{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}
	unreachable := node("a", corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	cordoned := node("worker", corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	cordoned.Spec.Unschedulable = true
	tolerating := func(t corev1.Toleration) operatorv1.NodePlacement {
		return operatorv1.NodePlacement{Tolerations: []corev1.Toleration{t}}
	}
	for name, test := range map[string]struct {
		nodes     []corev1.Node
		placement operatorv1.NodePlacement
		selector  string
		want      int32
	}{
		"no node":        {nil, operatorv1.NodePlacement{}, "", 1},
		"one":            {[]corev1.Node{node("a")}, operatorv1.NodePlacement{}, "", 1},
		"two":            {[]corev1.Node{node("a"), node("a")}, operatorv1.NodePlacement{}, "", 2},
		"five":           {[]corev1.Node{node("a"), node("a"), node("a"), node("a"), node("a")}, operatorv1.NodePlacement{}, "", 3},
		"cordoned":       {[]corev1.Node{node("a"), cordoned}, operatorv1.NodePlacement{}, "", 2},
		"unreachable":    {[]corev1.Node{node("a"), unreachable}, operatorv1.NodePlacement{}, "", 2},
		"tainted":        {[]corev1.Node{node("a"), node("a", tainted)}, operatorv1.NodePlacement{}, "", 1},
		"softly tainted": {[]corev1.Node{node("a"), node("a", soft)}, operatorv1.NodePlacement{}, "", 2},
		"tolerated": {[]corev1.Node{node("a"), node("a", tainted)},
			tolerating(corev1.Toleration{Key: "control", Operator: corev1.TolerationOpExists}), "", 2},
		"tolerated by value": {[]corev1.Node{node("a"), node("a", tainted)}, tolerating(corev1.Toleration{Key: "control", Value: "yes"}), "", 2},
		"another value":      {[]corev1.Node{node("a"), node("a", tainted)}, tolerating(corev1.Toleration{Key: "control", Value: "no"}), "", 1},
		"everything tolerated": {[]corev1.Node{node("a"), node("a", tainted)}, tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}),
			"", 2},
		"placed": {[]corev1.Node{node("a"), node("b"), node("b")}, operatorv1.NodePlacement{NodeSelector: map[string]string{"role": "b"}}, "",
			2},
		"selected": {[]corev1.Node{node("a"), node("b"), node("b")}, operatorv1.NodePlacement{}, "role=a", 1},
	} {
		var selector labels.Selector
		if test.selector != "" {
			selector = labels.SelectorFromSet(labels.Set{"role": "a"})
		}
		if got := replicas(test.nodes, test.placement, selector); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
