package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// apiRelease is the release of Open Cluster Management whose API the CRDs are. An operator with an older one leaves them alone.
const apiRelease = "1.3.1"

// CRDs is the kind of the definitions. They are never pruned: they hold what users have stored.
var CRDs = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// ApplyCRDs applies the definitions as part of an installation, except those that an operator with a newer API has applied. Those that were
// applied have a resource version then. A definition that cannot be applied does not keep the others from it; the error has all failures.
func (c *Cluster) ApplyCRDs(ctx context.Context, installation string, crds []*apiextensionsv1.CustomResourceDefinition) error {
	var failures []error
	for _, crd := range crds {
		release, err := c.releaseOf(ctx, installation, crd.Name)
		if err != nil {
			return err
		}
		if newer(release, apiRelease) {
			log.FromContext(ctx).Info("The CustomResourceDefinition is of a newer operator and stays", "name", crd.Name, "release", release)
			continue
		}
		metav1.SetMetaDataAnnotation(&crd.ObjectMeta, fleet.AnnotationOperatorVersion, apiRelease)
		failures = append(failures, c.applyOver(ctx, installation, crd))
	}
	return errors.Join(failures...)
}

// ReleaseCRD leaves a definition, with what is stored of its kind, on the cluster, and takes off it what makes it part of an installation.
func (c *Cluster) ReleaseCRD(ctx context.Context, crd client.Object) error {
	change := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:null}}}`, c.Label, fleet.AnnotationOperatorVersion)
	if err := c.Client.Patch(ctx, crd, client.RawPatch(types.MergePatchType, change)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	return nil
}

// releaseOf is the release of the API that a definition on the cluster is of; empty if there is none.
func (c *Cluster) releaseOf(ctx context.Context, installation, name string) (string, error) {
	existing, err := c.List(ctx, installation, CRDs)
	if err != nil {
		return "", err
	}
	for _, crd := range existing {
		if crd.GetName() == name {
			return crd.GetAnnotations()[fleet.AnnotationOperatorVersion], nil
		}
	}
	// Another installer may have made it, without the label of this one.
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(CRDs)
	if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, live); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	return live.Annotations[fleet.AnnotationOperatorVersion], nil
}

// Established tells whether a definition is served.
func Established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// OfNewerOperator tells whether a definition is one that an operator with a newer API has applied: it is left alone.
func OfNewerOperator(crd metav1.Object) bool {
	return newer(crd.GetAnnotations()[fleet.AnnotationOperatorVersion], apiRelease)
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
