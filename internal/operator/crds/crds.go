// Package crds applies CustomResourceDefinitions to clusters on which another operator may have applied newer ones.
package crds

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/apply"
)

// apiRelease is the release of Open Cluster Management whose API the CRDs are. An operator with an older one leaves them alone.
const apiRelease = "1.3.1"

// Kind is that of the definitions.
var Kind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// Apply applies the definitions as part of an installation, except those that an operator with a newer API has applied. Those that were
// applied have a resource version then. A definition that cannot be applied does not keep the others from it; the error has all failures.
func Apply(ctx context.Context, cluster *apply.Cluster, installation string, crds []*apiextensionsv1.CustomResourceDefinition) error {
	var failures []error
	for _, crd := range crds {
		release, err := releaseOf(ctx, cluster, installation, crd.Name)
		if err != nil {
			return err
		}
		if newer(release, apiRelease) {
			log.FromContext(ctx).Info("The CustomResourceDefinition is of a newer operator and stays", "name", crd.Name, "release", release)
			continue
		}
		metav1.SetMetaDataAnnotation(&crd.ObjectMeta, fleet.AnnotationOperatorVersion, apiRelease)
		failures = append(failures, applyOver(ctx, cluster, installation, crd))
	}
	return errors.Join(failures...)
}

// Release leaves a definition, with what is stored of its kind, on the cluster, and takes off it what makes it part of an installation.
func Release(ctx context.Context, cluster *apply.Cluster, crd client.Object) error {
	change := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:null}}}`, cluster.Label, fleet.AnnotationOperatorVersion)
	if err := cluster.Client.Patch(ctx, crd, client.RawPatch(types.MergePatchType, change)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	return nil
}

// releaseOf is the release of the API that a definition on the cluster is of; empty if there is none.
func releaseOf(ctx context.Context, cluster *apply.Cluster, installation, name string) (string, error) {
	known, err := cluster.List(ctx, installation, Kind)
	if err != nil {
		return "", err
	}
	for _, crd := range known {
		if crd.GetName() == name {
			return crd.GetAnnotations()[fleet.AnnotationOperatorVersion], nil
		}
	}
	// Another installer may have made it, without the label of this one.
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(Kind)
	if err := cluster.Client.Get(ctx, types.NamespacedName{Name: name}, live); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	return live.Annotations[fleet.AnnotationOperatorVersion], nil
}

// newer compares releases; what is no release is older than any.
func newer(a, b string) bool {
	first, err := version.ParseGeneric(a)
	if err != nil {
		return false
	}
	second, err := version.ParseGeneric(b)
	return err == nil && second.LessThan(first)
}
