package owner

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// sharedPrefix is the prefix of the names of annotations that add-ons share with their cluster. It has no slash, so that subdomains match,
// too.
const sharedPrefix = "addon.open-cluster-management.io"

// Complete sets the metadata of a ManagedClusterAddOn that follows from its ClusterManagementAddOn and its cluster, which may be nil.
func Complete(addOn *addonv1beta1.ManagedClusterAddOn, entry *addonv1beta1.ClusterManagementAddOn, cluster *clusterv1.ManagedCluster) {
	addOn.OwnerReferences = owned(addOn.OwnerReferences, entry)
	set(addOn, fleet.AnnotationDependsOn, entry.Annotations[fleet.AnnotationDependsOn])
	set(addOn, fleet.AnnotationDefaultPreDeleteTimeout, entry.Annotations[fleet.AnnotationPreDeleteTimeout])
	if cluster != nil {
		copyAnnotations(addOn, shared(cluster))
	}
}

// owned returns the owner references with one to the ClusterManagementAddOn, so that the add-on is deleted with it. It replaces a
// reference to a deleted object of the same name, with which the garbage collector would delete the add-on.
func owned(references []metav1.OwnerReference, entry *addonv1beta1.ClusterManagementAddOn) []metav1.OwnerReference {
	const kind = "ClusterManagementAddOn"
	if slices.ContainsFunc(references, func(r metav1.OwnerReference) bool { return r.UID == entry.UID }) {
		return references
	}
	kept := slices.DeleteFunc(slices.Clone(references), func(r metav1.OwnerReference) bool {
		return r.Kind == kind && r.Name == entry.Name && strings.HasPrefix(r.APIVersion, addonv1beta1.GroupVersion.Group+"/")
	})
	reference := metav1.OwnerReference{APIVersion: addonv1beta1.GroupVersion.String(), Kind: kind, Name: entry.Name, UID: entry.UID}
	return append(kept, reference)
}

// copyAnnotations keeps the annotations that an add-on shares with its cluster in sync, and removes those that the cluster no longer
// has. A value that a user has set on an add-on that was not installed by a strategy stays.
func copyAnnotations(addOn *addonv1beta1.ManagedClusterAddOn, desired map[string]string) {
	byStrategy := addOn.Annotations[fleet.AnnotationInstalledBy] == fleet.InstalledByStrategy
	copied := map[string]bool{}
	for key := range strings.SplitSeq(addOn.Annotations[fleet.AnnotationFromCluster], ",") {
		copied[key] = true
	}
	var now []string
	for _, key := range slices.Sorted(maps.Keys(desired)) {
		if _, own := addOn.Annotations[key]; byStrategy || copied[key] || !own {
			metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, key, desired[key])
			now = append(now, key)
		}
	}
	for key := range copied {
		if _, still := desired[key]; !still {
			delete(addOn.Annotations, key)
		}
	}
	set(addOn, fleet.AnnotationFromCluster, strings.Join(now, ","))
}

// shared returns the annotations of a cluster that its add-ons also have.
func shared(cluster client.Object) map[string]string {
	annotations := map[string]string{}
	for key, value := range cluster.GetAnnotations() {
		if strings.HasPrefix(key, sharedPrefix) {
			annotations[key] = value
		}
	}
	return annotations
}

func set(addOn *addonv1beta1.ManagedClusterAddOn, key, value string) {
	if value == "" {
		delete(addOn.Annotations, key)
		return
	}
	metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, key, value)
}
