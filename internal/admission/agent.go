package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var requestResource = certificatesv1.Resource("certificatesigningrequests")

// validateAgentUpdate allows an agent to change only how its cluster is reached. RBAC lets it update all of its ManagedCluster, but
// labels decide which sets and placements select the cluster, and so which secrets it gets; taints keep workloads off it; and
// finalizers make the hub revoke the agent's rights when the cluster is deleted.
func validateAgentUpdate(cluster, old *clusterv1.ManagedCluster, sender Sender) error {
	spec, oldSpec := cluster.Spec, old.Spec
	spec.ManagedClusterClientConfigs, oldSpec.ManagedClusterClientConfigs = nil, nil
	metadata := field.NewPath("metadata")
	for _, part := range []struct {
		path        *field.Path
		now, before any
	}{
		{metadata.Child("labels"), cluster.Labels, old.Labels},
		{metadata.Child("annotations"), annotationsOfHub(cluster), annotationsOfHub(old)},
		{metadata.Child("finalizers"), cluster.Finalizers, old.Finalizers},
		{metadata.Child("ownerReferences"), cluster.OwnerReferences, old.OwnerReferences},
		{field.NewPath("spec"), spec, oldSpec},
	} {
		if !equality.Semantic.DeepEqual(part.now, part.before) {
			return apierrors.NewForbidden(managedClusterResource, cluster.Name, fmt.Errorf(
				"user %q is the agent of a cluster and cannot change %s: it may change spec.managedClusterClientConfigs and annotations that begin with %s, "+
					"but not which cluster of AWS it is; the rest is for administrators of the hub", sender.Name, part.path, fleet.AnnotationAgentPrefix))
		}
	}
	return nil
}

// annotationsOfHub returns the annotations that an agent may not change.
func annotationsOfHub(cluster *clusterv1.ManagedCluster) map[string]string {
	annotations := maps.Clone(cluster.Annotations)
	maps.DeleteFunc(annotations, func(name, _ string) bool { return fleet.AgentChangesAnnotation(name) })
	return annotations
}

// ValidateManifestWorkMetadata allows an agent to change only the finalizers of a work by which the hub waits for it. With other
// finalizers it would keep a work, and so its rights, from being deleted when the hub continues without it. Owner references would do
// the same, or have the work deleted, and by labels the hub knows whose work it is.
func ValidateManifestWorkMetadata(work, old metav1.Object, sender Sender) error {
	if !sender.actsFor(work.GetNamespace()) {
		return nil
	}
	metadata := field.NewPath("metadata")
	for _, part := range []struct {
		path        *field.Path
		now, before any
	}{
		{metadata.Child("finalizers"), finalizersOfOthers(work), finalizersOfOthers(old)},
		{metadata.Child("ownerReferences"), work.GetOwnerReferences(), old.GetOwnerReferences()},
		{metadata.Child("labels"), work.GetLabels(), old.GetLabels()},
	} {
		if !equality.Semantic.DeepEqual(part.now, part.before) {
			return apierrors.NewForbidden(manifestWorkResource, work.GetName(), fmt.Errorf(
				"user %q acts for cluster %q and cannot change %s to %v: of the metadata of a work, it may change finalizers of %s, such as %s, and annotations",
				sender.Name, work.GetNamespace(), part.path, part.now, fleet.AgentFinalizers[1:len(fleet.AgentFinalizers)-1],
				fleet.FinalizerManifestWorkCleanup))
		}
	}
	return validateWorkAnnotations(work, old, sender)
}

// validateWorkAnnotations refuses to the agent of a cluster changes of annotations that are extensions, by one of which the hub knows since
// when a cluster counts in a rollout. All annotations may take mostWorkAnnotationBytes: every client that lists works reads them. Add-ons,
// and service accounts that deploy, have permissions of their own, and change works as users do.
func validateWorkAnnotations(work, old metav1.Object, sender Sender) error {
	if !slices.Contains(sender.Clusters, work.GetNamespace()) {
		return nil
	}
	path := field.NewPath("metadata", "annotations")
	if now := extensionsOf(work); !maps.Equal(now, extensionsOf(old)) {
		return apierrors.NewForbidden(manifestWorkResource, work.GetName(), fmt.Errorf(
			"user %q is the agent of cluster %q and cannot change %s that begin with %s, here to %v: they are for the hub and its users",
			sender.Name, work.GetNamespace(), path, fleet.AnnotationExtensionPrefix, now))
	}
	return limitGrowth(work.GetAnnotations(), old.GetAnnotations(), mostWorkAnnotationBytes,
		fmt.Sprintf("ManifestWork %s/%s", work.GetNamespace(), work.GetName()), path)
}

// extensionsOf returns the annotations of an object that are extensions.
func extensionsOf(o metav1.Object) map[string]string {
	annotations := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(annotations, func(name, _ string) bool { return !strings.HasPrefix(name, fleet.AnnotationExtensionPrefix) })
	return annotations
}

// ValidateManifestWorkSpec refuses to an agent any change of what its cluster is to have. RBAC lets it update its works, for their
// finalizers. With a time to live the hub would delete the work, which the agent may not, and with its manifests the agent would store far
// more than it may report.
func ValidateManifestWorkSpec(work, old *workv1.ManifestWork, sender Sender) error {
	if old == nil || !slices.Contains(sender.Clusters, work.Namespace) || equality.Semantic.DeepEqual(work.Spec, old.Spec) {
		return nil
	}
	return apierrors.NewForbidden(manifestWorkResource, work.Name, fmt.Errorf(
		"user %q is the agent of cluster %q and cannot change spec: it applies works and reports on them; what they say is for users of the hub",
		sender.Name, work.Namespace))
}

// validateHold keeps a sender from changing the finalizers and the owners of an object, of which a new one has none. With finalizers, which
// nobody would remove, it would keep the object and its namespace from being deleted; with owners, it would hold up their deletion. It
// fails with 403.
func validateHold(object, old metav1.Object, resource schema.GroupResource, sender Sender) error {
	var finalizers []string
	var owners []metav1.OwnerReference
	if old != nil {
		finalizers, owners = old.GetFinalizers(), old.GetOwnerReferences()
	}
	metadata := field.NewPath("metadata")
	for _, part := range []struct {
		path        *field.Path
		now, before any
	}{
		{metadata.Child("finalizers"), object.GetFinalizers(), finalizers},
		{metadata.Child("ownerReferences"), object.GetOwnerReferences(), owners},
	} {
		if !equality.Semantic.DeepEqual(part.now, part.before) {
			return apierrors.NewForbidden(resource, object.GetName(), fmt.Errorf(
				"user %q joins or acts for a cluster and cannot change %s: leave it as it is, and out of a new object", sender.Name, part.path))
		}
	}
	return nil
}

// finalizersOfOthers returns the finalizers that agents neither set nor remove, and that the hub does not remove for them.
func finalizersOfOthers(o metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return strings.Contains(f, fleet.AgentFinalizers) })
}

// ValidateCertificateSigningRequest ensures that the label of a request names its author: the agent of a cluster may only create
// requests with the label of this cluster. So an agent finds only its own requests by the label, and the requests of one cluster do not
// count against another. Nobody of those keeps a request from expiring, or gives it a name that no object of Kubernetes has: administrators
// approve requests by their names, and those of agents. It fails with 403, and with 413 on a request that is far larger than those of
// agents. The content of the request is checked when it is approved.
func ValidateCertificateSigningRequest(csr, old metav1.Object, sender Sender) error {
	if sender.stranger() {
		if err := validateHold(csr, old, requestResource, sender); err != nil {
			return err
		}
		if faults := validation.IsDNS1123Subdomain(csr.GetName()); old == nil && csr.GetName() != "" && len(faults) > 0 {
			return apierrors.NewForbidden(requestResource, csr.GetName(), fmt.Errorf(
				"user %q joins or acts for a cluster and cannot set metadata.name to %q: %s", sender.Name, csr.GetName(), strings.Join(faults, "; ")))
		}
		if err := limitSize(csr, mostRequestBytes, fmt.Sprintf("CertificateSigningRequest %q", csr.GetName()), nil); err != nil {
			return err
		}
	}
	label := csr.GetLabels()[fleet.LabelClusterName]
	if len(sender.Clusters) == 0 || slices.Contains(sender.Clusters, label) {
		return nil
	}
	return apierrors.NewForbidden(requestResource, csr.GetName(), fmt.Errorf(
		"user %q is an agent of cluster %q and cannot create a request with the label %s=%q: set the label to its own cluster",
		sender.Name, strings.Join(sender.Clusters, " "), fleet.LabelClusterName, label))
}
