package klusterlet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

var kindNamespace = corev1.SchemeGroupVersion.WithKind("Namespace")

var kindCRD = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// applyCRDs applies the CRDs, except those that an operator with a newer API has applied.
func (c *Controller) applyCRDs(ctx context.Context, cluster *apply.Cluster, crds []*apiextensionsv1.CustomResourceDefinition) error {
	var wanted []client.Object
	for _, crd := range crds {
		release, err := releaseOf(ctx, cluster, crd.Name)
		if err != nil {
			return err
		}
		if newer(release, apiRelease) {
			log.FromContext(ctx).Info("The CustomResourceDefinition is of a newer operator and stays", "name", crd.Name, "release", release)
			continue
		}
		metav1.SetMetaDataAnnotation(&crd.ObjectMeta, fleet.AnnotationOperatorVersion, apiRelease)
		wanted = append(wanted, crd)
	}
	return cluster.Apply(ctx, sharedInstallation, wanted...)
}

// releaseOf is the release of the API that a CRD is of; empty if there is none.
func releaseOf(ctx context.Context, cluster *apply.Cluster, name string) (string, error) {
	known, err := cluster.List(ctx, sharedInstallation, kindCRD)
	if err != nil {
		return "", err
	}
	for _, crd := range known {
		if crd.GetName() == name {
			return crd.GetAnnotations()[fleet.AnnotationOperatorVersion], nil
		}
	}
	// Another installer may have made it, without our label.
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(kindCRD)
	live, err = ignoreNotFound(live, cluster.Client.Get(ctx, types.NamespacedName{Name: name}, live))
	if err != nil {
		return "", fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	if live == nil {
		return "", nil
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

// releaseCRDs leaves the CRDs, which hold what users have stored, without a trace of the operator.
func releaseCRDs(ctx context.Context, cluster *apply.Cluster) error {
	crds, err := cluster.List(ctx, sharedInstallation, kindCRD)
	if err != nil {
		return err
	}
	change := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:null}}}`, cluster.Label, fleet.AnnotationOperatorVersion)
	for _, crd := range crds {
		if err := client.IgnoreNotFound(cluster.Client.Patch(ctx, crd, client.RawPatch(types.MergePatchType, change))); err != nil {
			return fmt.Errorf("release CustomResourceDefinition %s: %w", crd.GetName(), err)
		}
	}
	return nil
}
