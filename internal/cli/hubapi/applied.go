package hubapi

import (
	"context"
	"fmt"
	"slices"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

const appliedManifestWorks = "appliedmanifestworks"

// AppliedWorks lists what an agent has applied, for a Hub that is a managed cluster. One that no agent has been on has none.
func (h *Hub) AppliedWorks(ctx context.Context, agent string) ([]workv1.AppliedManifestWork, error) {
	list := &workv1.AppliedManifestWorkList{}
	err := h.works.Get().Resource(appliedManifestWorks).Do(ctx).Into(list)
	if notServed(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the AppliedManifestWorks of %s: %w", h.Server, err)
	}
	return slices.DeleteFunc(list.Items, func(w workv1.AppliedManifestWork) bool { return w.Spec.AgentID != agent }), nil
}

// WaitForNoAppliedWorks returns once an agent has taken off everything that it applied.
func (h *Hub) WaitForNoAppliedWorks(ctx context.Context, agent string) error {
	err := untilNone(ctx, watched{client: h.works, resource: appliedManifestWorks}, func(w *workv1.AppliedManifestWork) bool {
		return w.Spec.AgentID == agent
	})
	if notServed(err) {
		return nil
	}
	return err
}
