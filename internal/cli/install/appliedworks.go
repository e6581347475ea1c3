package install

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

var appliedManifestWorks = workv1.GroupVersion.WithResource("appliedmanifestworks")

// appliedWorks lists what an agent has applied, for a Hub that is a managed cluster. One that no agent has been on has none.
func appliedWorks(ctx context.Context, hub *hubapi.Hub, agent string) ([]workv1.AppliedManifestWork, error) {
	list := &workv1.AppliedManifestWorkList{}
	err := hub.Client(appliedManifestWorks).List(ctx, metav1.ListOptions{}, list)
	if hubapi.NotServed(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the AppliedManifestWorks of %s: %w", hub.Server, err)
	}
	return slices.DeleteFunc(list.Items, func(w workv1.AppliedManifestWork) bool { return w.Spec.AgentID != agent }), nil
}

// awaitNoAppliedWorks returns once an agent has taken off everything that it applied.
func awaitNoAppliedWorks(ctx context.Context, hub *hubapi.Hub, agent string) error {
	err := hubapi.UntilNone(ctx, hub.Client(appliedManifestWorks), metav1.ListOptions{}, func(w *workv1.AppliedManifestWork) bool {
		return w.Spec.AgentID == agent
	})
	if hubapi.NotServed(err) {
		return nil
	}
	return err
}
