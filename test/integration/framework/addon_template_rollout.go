package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// HasWork tells whether the hub has brought the value to a cluster. It fails if there is no work at all.
func (s *AddOnSite) HasWork(ctx context.Context, end, addOn, value string) (bool, error) {
	w := &workv1.ManifestWork{}
	if err := s.C.Get(ctx, client.ObjectKey{Namespace: s.Name + "-" + end, Name: "addon-" + addOn + "-deploy-0"}, w); err != nil {
		return false, err
	}
	return strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), value), nil
}

// AwaitWork waits until the work of the add-on on a cluster has the value.
func (s *AddOnSite) AwaitWork(t *testing.T, end, addOn, value string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		has, err := s.HasWork(ctx, end, addOn, value)
		if err == nil && !has {
			return fmt.Errorf("%s has not come to %s", value, end)
		}
		return err
	})
}

// Finish plays the agent of a cluster: the work of the add-on is done.
func (s *AddOnSite) Finish(t *testing.T, end, addOn string) {
	t.Helper()
	w := &workv1.ManifestWork{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, client.ObjectKey{Namespace: s.Name + "-" + end, Name: "addon-" + addOn + "-deploy-0"}, w); err != nil {
			return err
		}
		for _, kind := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test",
				ObservedGeneration: w.Generation})
		}
		return s.C.Status().Update(ctx, w)
	})
}
