package installation

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What Helm writes on the objects of a release, and goes by before it takes an object for one of them.
const (
	annotationReleaseName      = "meta.helm.sh/release-name"
	annotationReleaseNamespace = "meta.helm.sh/release-namespace"
	labelManagedBy             = "app.kubernetes.io/managed-by"
	managedByHelm              = "Helm"
)

// Release is a release of Helm; one without a name is none.
type Release struct{ Namespace, Name string }

func releaseOf(annotations map[string]string) Release {
	return Release{annotations[annotationReleaseNamespace], annotations[annotationReleaseName]}
}

// Selector selects the Secrets in the namespace of the release that are Helm's record of it, one for each revision.
func (r Release) Selector() string { return "owner=helm,name=" + r.Name }

// TakeFromHelm takes Helm's label and annotations off those objects on the cluster that are of a release. What is of another keeps them,
// such as a namespace that several use; a CustomResourceDefinition does not, because the charts have it name their usual release, whatever
// the name is. Deployments come last: by them a release is found, so a run that was interrupted can be made again.
//
// The annotation helm.sh/resource-policy stays: by it, an upgrade of the release does not delete the CustomResourceDefinition, which its
// chart leaves out from then on.
func (c *Cluster) TakeFromHelm(ctx context.Context, release Release, objects []*unstructured.Unstructured) error {
	for _, object := range deploymentsLast(objects) {
		of := ReferenceTo(object)
		live, err := c.Get(ctx, of)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		found := releaseOf(live.GetAnnotations())
		if found.Name == "" || found != release && of.GroupVersionKind != KindCRD {
			continue
		}
		if err := c.Patch(ctx, of, withoutHelm(live)); err != nil {
			return err
		}
	}
	return nil
}

// withRelease is an object to apply with the annotations by which it is of a release on the cluster, if it is of one. They would go with
// the other fields of Helm, and without them nothing is found to take from it.
func withRelease(object, live *unstructured.Unstructured) *unstructured.Unstructured {
	marked, annotations := object.DeepCopy(), map[string]string{}
	maps.Copy(annotations, object.GetAnnotations())
	for _, name := range []string{annotationReleaseName, annotationReleaseNamespace} {
		if value, has := live.GetAnnotations()[name]; has {
			annotations[name] = value
		}
	}
	if len(annotations) > 0 {
		marked.SetAnnotations(annotations)
	}
	return marked
}

func deploymentsLast(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	isDeployment := func(object *unstructured.Unstructured) bool { return object.GroupVersionKind() == KindDeployment }
	others := slices.DeleteFunc(slices.Clone(objects), isDeployment)
	for _, object := range objects {
		if isDeployment(object) {
			others = append(others, object)
		}
	}
	return others
}

// withoutHelm is the patch that takes Helm's labels and annotations off an object.
func withoutHelm(object *unstructured.Unstructured) []byte {
	metadata := map[string]any{"annotations": map[string]any{annotationReleaseName: nil, annotationReleaseNamespace: nil}}
	if object.GetLabels()[labelManagedBy] == managedByHelm {
		metadata["labels"] = map[string]any{labelManagedBy: nil}
	}
	return marshal(map[string]any{"metadata": metadata})
}
