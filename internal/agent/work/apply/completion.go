package apply

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// recordCompletion writes down what is complete of the work by its status in memory, before the hub is told.
func (c *Controller) recordCompletion(ctx context.Context, amw *workv1.AppliedManifestWork, work *workv1.ManifestWork) error {
	encoded := appliedmanifestwork.NewCompletion(work).Encode()
	if encoded == amw.Annotations[fleet.AnnotationCompletion] {
		return nil
	}
	changed := amw.DeepCopy()
	if encoded == "" {
		delete(changed.Annotations, fleet.AnnotationCompletion)
	} else {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, fleet.AnnotationCompletion, encoded)
	}
	if err := c.managed.Patch(ctx, changed, client.MergeFrom(amw)); err != nil {
		return fmt.Errorf("write down what is complete in AppliedManifestWork %s: %w", amw.Name, err)
	}
	amw.ObjectMeta = changed.ObjectMeta
	return nil
}

// recall gives a work that comes without a status, as brokers send it, that of what is complete. It reports whether the work is complete,
// and the hub is to be told again: it has the same status, unless it was restored.
func (c *Controller) recall(ctx context.Context, work *workv1.ManifestWork) (isNews bool, err error) {
	if len(work.Status.Conditions) > 0 {
		return false, nil
	}
	amw, name := &workv1.AppliedManifestWork{}, c.names.Of(work.Name)
	if err := c.managed.Get(ctx, types.NamespacedName{Name: name}, amw); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	completion := appliedmanifestwork.CompletionOf(amw, work.UID)
	if completion == nil {
		return false, nil
	}
	work.Status = completion.Status
	return conditions.IsComplete(work) && !completion.Reduced, nil
}
