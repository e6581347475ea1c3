package clusterset_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/hub/registration/clusterset"
)

// RG-40: ClusterSetEmpty, with the time at which its status changed.
func TestClusterSetEmpty(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	earlier := metav1.NewTime(now.Add(-time.Hour).Local())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, clusterv1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	byLabel := func(selector *metav1.LabelSelector) clusterv1beta2.ManagedClusterSelector {
		return clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector, LabelSelector: selector}
	}
	exclusive := clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.ExclusiveClusterSetLabel}
	for name, test := range map[string]struct {
		selector clusterv1beta2.ManagedClusterSelector
		members  int
		before   metav1.ConditionStatus // empty for none
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		"no member":             {exclusive, 0, "", "True", "NoClusterMatched", "No ManagedCluster selected"},
		"the last one has gone": {exclusive, 0, "False", "True", "NoClusterMatched", "No ManagedCluster selected"},
		"one member":            {exclusive, 1, "True", "False", "ClustersSelected", "1 ManagedClusters selected"},
		"another one":           {exclusive, 2, "False", "False", "ClustersSelected", "2 ManagedClusters selected"},
		"all clusters":          {byLabel(&metav1.LabelSelector{}), 3, "", "False", "ClustersSelected", "3 ManagedClusters selected"},
		"a selector that is wrong": {byLabel(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a",
			Operator: "Like"}}}), 1, "", "True", "NoClusterMatched", "Like"},
		"a very long one that is wrong": {byLabel(&metav1.LabelSelector{MatchLabels: map[string]string{"a": strings.Repeat("b", 40_000)}}), 1, "",
			"True", "NoClusterMatched", "bbb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 7},
				Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: test.selector}}
			if test.before != "" {
				set.Status.Conditions = []metav1.Condition{{Type: "ClusterSetEmpty", Status: test.before, Reason: "Before",
					LastTransitionTime: earlier}}
			}
			builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(set).WithStatusSubresource(set)
			for i := range test.members {
				builder.WithObjects(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprint("c", i), Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": "s"},
				}})
			}
			c := builder.Build()
			if _, err := clusterset.New(c, clusterset.Options{Clock: clocktesting.NewFakeClock(now)}).Reconcile(t.Context(),
				ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
				t.Fatal(err)
			}
			cond, at := meta.FindStatusCondition(set.Status.Conditions, "ClusterSetEmpty"), now
			if test.before == test.status {
				at = earlier.Time
			}
			if cond == nil || cond.Status != test.status || cond.Reason != test.reason || !strings.Contains(cond.Message, test.message) ||
				len(cond.Message) > 32768 || !cond.LastTransitionTime.Time.Equal(at) || cond.ObservedGeneration != 7 {
				t.Errorf("got %+v, want %s %s %q at %s", cond, test.status, test.reason, test.message, at)
			}
		})
	}
}
