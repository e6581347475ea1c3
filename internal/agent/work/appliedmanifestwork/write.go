package appliedmanifestwork

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// ownAnnotations are those of an AppliedManifestWork that the agent keeps up to date.
var ownAnnotations = []string{fleet.AnnotationManifests, fleet.AnnotationPropagationPolicy, fleet.AnnotationClusterName,
	fleet.AnnotationWorkSource}

// Describe makes an AppliedManifestWork say what a fresh one would, but for the status.
func Describe(ctx context.Context, managed client.Client, amw, fresh *workv1.AppliedManifestWork) error {
	before := amw.DeepCopy()
	controllerutil.AddFinalizer(amw, fleet.FinalizerAppliedManifestWorkCleanup)
	amw.Spec.AgentID = fresh.Spec.AgentID
	for _, key := range ownAnnotations {
		if value, ok := fresh.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&amw.ObjectMeta, key, value)
		} else {
			delete(amw.Annotations, key)
		}
	}
	if equality.Semantic.DeepEqual(before, amw) {
		return nil
	}
	if err := managed.Patch(ctx, amw, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("take over AppliedManifestWork %s: %w", amw.Name, err)
	}
	return nil
}

// WriteInventory writes down what an AppliedManifestWork owns, in the order of the API.
func WriteInventory(ctx context.Context, managed client.Client, amw *workv1.AppliedManifestWork,
	resources []workv1.AppliedManifestResourceMeta) error {
	resources = Sorted(resources)
	if equality.Semantic.DeepEqual(amw.Status.AppliedResources, resources) {
		return nil
	}
	amw.Status.AppliedResources = resources
	return WriteStatus(ctx, managed, amw)
}

// WriteStatus writes the status of an AppliedManifestWork.
func WriteStatus(ctx context.Context, managed client.Client, amw *workv1.AppliedManifestWork) error {
	if err := managed.Status().Update(ctx, amw); err != nil {
		return fmt.Errorf("update the status of AppliedManifestWork %s: %w", amw.Name, err)
	}
	return nil
}

// WriteCompletion writes down what is complete of a work; nil if nothing is.
func WriteCompletion(ctx context.Context, managed client.Client, amw *workv1.AppliedManifestWork, c *Completion) error {
	encoded := c.Encode()
	if encoded == amw.Annotations[fleet.AnnotationCompletion] {
		return nil
	}
	changed := amw.DeepCopy()
	if encoded == "" {
		delete(changed.Annotations, fleet.AnnotationCompletion)
	} else {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, fleet.AnnotationCompletion, encoded)
	}
	if err := managed.Patch(ctx, changed, client.MergeFrom(amw)); err != nil {
		return fmt.Errorf("write down what is complete in AppliedManifestWork %s: %w", amw.Name, err)
	}
	amw.ObjectMeta = changed.ObjectMeta
	return nil
}
