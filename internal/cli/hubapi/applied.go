package hubapi

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

var appliedManifestWorks = workv1.GroupVersion.WithResource("appliedmanifestworks")

// AppliedWorks lists what an agent has applied, for a Hub that is a managed cluster. One that no agent has been on has none.
func (h *Hub) AppliedWorks(ctx context.Context, agent string) ([]workv1.AppliedManifestWork, error) {
	list := &workv1.AppliedManifestWorkList{}
	err := h.Client(appliedManifestWorks).List(ctx, metav1.ListOptions{}, list)
	if NotServed(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the AppliedManifestWorks of %s: %w", h.Server, err)
	}
	return slices.DeleteFunc(list.Items, func(w workv1.AppliedManifestWork) bool { return w.Spec.AgentID != agent }), nil
}

// WaitForNoAppliedWorks returns once an agent has taken off everything that it applied.
func (h *Hub) WaitForNoAppliedWorks(ctx context.Context, agent string) error {
	err := UntilNone(ctx, h.Client(appliedManifestWorks), metav1.ListOptions{}, func(w *workv1.AppliedManifestWork) bool {
		return w.Spec.AgentID == agent
	})
	if NotServed(err) {
		return nil
	}
	return err
}
