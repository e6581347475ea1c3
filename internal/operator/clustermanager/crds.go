package clustermanager

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/upgrade"
)

// apiRelease is the release of Open Cluster Management whose API the CRDs are. An operator with an older one leaves them alone.
const apiRelease = "1.3.1"

// applyCRDs applies the CRDs, except those that an operator with a newer API has applied.
func (c *Controller) applyCRDs(ctx context.Context, hub *apply.Cluster, installation string, wanted *plan) error {
	var older []client.Object
	for _, crd := range wanted.crds {
		release, err := releaseOf(ctx, hub, installation, crd.Name)
		if err != nil {
			return err
		}
		if newer(release, apiRelease) {
			log.FromContext(ctx).Info("The CRD is of a newer operator and stays", "crd", crd.Name, "release", release)
			continue
		}
		older = append(older, crd)
	}
	return hub.Apply(ctx, installation, older...)
}

// releaseOf is the API release that a CRD on the hub is of; empty if there is none.
func releaseOf(ctx context.Context, hub *apply.Cluster, installation, name string) (string, error) {
	known, err := hub.List(ctx, installation, kindCRD)
	if err != nil {
		return "", err
	}
	for _, crd := range known {
		if crd.GetName() == name {
			return crd.GetAnnotations()[fleet.AnnotationOperatorVersion], nil
		}
	}
	// Another installer may have made it, without the label of this one.
	live, err := metadataOfCRD(ctx, hub, name)
	if err != nil || live == nil {
		return "", err
	}
	return live.Annotations[fleet.AnnotationOperatorVersion], nil
}

// metadataOfCRD is that of a CRD on the hub, nil if there is none.
func metadataOfCRD(ctx context.Context, hub *apply.Cluster, name string) (*metav1.PartialObjectMetadata, error) {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(kindCRD)
	if err := hub.Client.Get(ctx, types.NamespacedName{Name: name}, live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	return live, nil
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

// checkUpgrade refuses to take over what is more than a minor version away.
func (c *Controller) checkUpgrade(cm *operatorv1.ClusterManager) error {
	return upgrade.Check(cm.Annotations[upgrade.AnnotationVersion], c.Version, cm.Annotations)
}

// remember writes down that this version has installed everything.
func (c *Controller) remember(ctx context.Context, cm *operatorv1.ClusterManager) error {
	if cm.Annotations[upgrade.AnnotationVersion] == c.Version {
		return nil
	}
	change := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, upgrade.AnnotationVersion, c.Version)
	target := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: cm.Name}}
	return c.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, change))
}
