package installation

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What Helm writes on the objects of a release, and goes by before it takes an object for one of them.
const (
	annotationReleaseName      = "meta.helm.sh/release-name"
	annotationReleaseNamespace = "meta.helm.sh/release-namespace"
	labelManagedBy             = "app.kubernetes.io/managed-by"
	managedByHelm              = "Helm"

	annotationResourcePolicy = "helm.sh/resource-policy"
	policyKeep               = "keep"
)

// Release is a release of Helm; one without a name is none.
type Release struct{ Namespace, Name string }

func releaseOf(annotations map[string]string) Release {
	return Release{annotations[annotationReleaseNamespace], annotations[annotationReleaseName]}
}

// Selector selects the Secrets in the namespace of the release that are Helm's record of it, one for each revision.
func (r Release) Selector() string { return "owner=helm,name=" + r.Name }

// ReleaseOf is the release of Helm that an object is of.
func ReleaseOf(object *unstructured.Unstructured) Release { return releaseOf(object.GetAnnotations()) }

// TakeFromHelm takes Helm's label and annotations off those objects on the cluster that are of a release. What is of another keeps them,
// such as a namespace that several use; a CustomResourceDefinition does not, because the charts have it name their usual release, whatever
// the name is. The kinds by which releases are found come last, so a run that was interrupted can be made again.
//
// The annotation helm.sh/resource-policy stays: by it, an upgrade of the release does not delete the CustomResourceDefinition, which its
// chart leaves out from then on. With keep, all of the objects get it, for a release that goes on without them.
func (c *Cluster) TakeFromHelm(ctx context.Context, release Release, objects []*unstructured.Unstructured, keep bool) error {
	for _, object := range findersLast(objects) {
		of := ReferenceTo(object)
		live, err := c.Get(ctx, of)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		found := ReleaseOf(live)
		if found.Name == "" || found != release && of.GroupVersionKind != KindCRD {
			continue
		}
		if err := c.Patch(ctx, of, withoutHelm(live, keep)); err != nil {
			return err
		}
	}
	return nil
}

// withRelease is an object to apply with the annotations by which it is of a release on the cluster, if it is of one. They would go with
// the other fields of Helm, and without them nothing is found to take from it. What Helm is not to delete stays so, too.
func withRelease(object, live *unstructured.Unstructured) *unstructured.Unstructured {
	marked, annotations := object.DeepCopy(), map[string]string{}
	maps.Copy(annotations, object.GetAnnotations())
	for _, name := range []string{annotationReleaseName, annotationReleaseNamespace, annotationResourcePolicy} {
		if value, has := live.GetAnnotations()[name]; has {
			annotations[name] = value
		}
	}
	if len(annotations) > 0 {
		marked.SetAnnotations(annotations)
	}
	return marked
}

// ReleaseFinders are the kinds of the objects by which releases are found that are to be taken over, the surest first.
var ReleaseFinders = []schema.GroupVersionKind{KindDeployment, KindClusterManager, KindKlusterlet, KindSecret}

// findersLast sorts objects of those kinds behind the others, the surest last.
func findersLast(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	rank := func(object *unstructured.Unstructured) int {
		if at := slices.Index(ReleaseFinders, object.GroupVersionKind()); at >= 0 {
			return len(ReleaseFinders) - at
		}
		return 0
	}
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return sorted
}

// withoutHelm is the patch that takes Helm's labels and annotations off an object; with keep, Helm does not delete it.
func withoutHelm(object *unstructured.Unstructured, keep bool) []byte {
	annotations := map[string]any{annotationReleaseName: nil, annotationReleaseNamespace: nil}
	if keep {
		annotations[annotationResourcePolicy] = policyKeep
	}
	metadata := map[string]any{"annotations": annotations}
	if object.GetLabels()[labelManagedBy] == managedByHelm {
		metadata["labels"] = map[string]any{labelManagedBy: nil}
	}
	return marshal(map[string]any{"metadata": metadata})
}
