package clustermanager

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// CM-02: the hub of the operator's cluster belongs to the oldest ClusterManager that wants it.
func TestSameHub(t *testing.T) {
	t.Parallel()
	named := func(name string, age time.Duration, mode operatorv1.InstallMode) *operatorv1.ClusterManager {
		cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: name,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Add(-age))}}
		cm.Spec.DeployOption.Mode = mode
		return cm
	}
	first, second := named("first", 2*time.Hour, operatorv1.InstallModeDefault), named("second", time.Hour, "")
	hosted, twin := named("hosted", 3*time.Hour, operatorv1.InstallModeHosted), named("twin", time.Hour, "")
	c := &Controller{Operator: &frame.Operator{Client: fake.NewClientBuilder().WithScheme(Scheme()).
		WithObjects(first.DeepCopy(), second.DeepCopy(), hosted.DeepCopy(), twin.DeepCopy()).Build()}}
	for cm, want := range map[*operatorv1.ClusterManager]string{first: "", second: "first", hosted: "", twin: "first"} {
		if got, err := c.sameHub(t.Context(), cm); err != nil || got != want {
			t.Errorf("%s: %q, %v", cm.Name, got, err)
		}
	}
	if !frame.Older(second, twin) || frame.Older(twin, second) {
		t.Error("of two that are as old, the name does not decide")
	}
}
