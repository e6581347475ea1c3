package cleanup

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-44: a deletion is always looked at again, also that of a cluster that is available long after its time: the watch on what
// remains may fail.
func TestSafetyNet(t *testing.T) {
	t.Parallel()
	deleted := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	for name, test := range map[string]struct {
		timeout   string
		available bool
		want      time.Duration
	}{
		"no deadline":                      {"", false, time.Minute},
		"a deadline that is near":          {"60m10s", false, 10 * time.Second},
		"a deadline that is far":           {"2h", false, time.Minute},
		"a deadline that has passed":       {"1m", false, time.Minute},
		"one that an available has missed": {"1m", true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted},
				Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
			if test.timeout != "" {
				cluster.Annotations = map[string]string{fleet.AnnotationDeletionTimeout: test.timeout}
			}
			if test.available {
				meta.SetStatusCondition(&cluster.Status.Conditions,
					metav1.Condition{Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionTrue})
			}
			now := deleted.Add(time.Hour)
			d, err := (&Controller{Options: Options{Clock: clocktesting.NewFakeClock(now)}}).deadline(cluster)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.again(now); got != test.want {
				t.Errorf("looked at again after %s, want %s", got, test.want)
			}
		})
	}
}

// "capstan deny --now": the agent of a cluster that is cut off cannot clean up, so nobody waits for it, however available it says it is.
func TestNobodyWaitsForACutOffCluster(t *testing.T) {
	t.Parallel()
	deleted := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted,
		Labels: map[string]string{"capstan.io/cut-off": "true"}, Annotations: map[string]string{"capstan.io/deletion-timeout": "10h"}}}
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionTrue})
	controller := &Controller{Options: Options{Clock: clocktesting.NewFakeClock(deleted.Time)}}
	if d, err := controller.deadline(cluster); err != nil || !d.passed {
		t.Errorf("%+v, %v", d, err)
	}
	cluster.Spec.HubAcceptsClient = true
	if d, err := controller.deadline(cluster); err != nil || d.passed {
		t.Errorf("a cluster that is accepted again: %+v, %v", d, err)
	}
}
