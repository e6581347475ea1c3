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

// sharedPrefix begins the annotations that add-ons share with their cluster: without a slash, so that of
// subdomains, too.
const sharedPrefix = "addon.open-cluster-management.io"

// Complete gives a ManagedClusterAddOn the metadata that follows from its ClusterManagementAddOn and its cluster, which may
// be nil.
func Complete(addOn *addonv1beta1.ManagedClusterAddOn, entry *addonv1beta1.ClusterManagementAddOn, cluster *clusterv1.ManagedCluster) {
	addOn.OwnerReferences = owned(addOn.OwnerReferences, entry)
	set(addOn, fleet.AnnotationDependsOn, entry.Annotations[fleet.AnnotationDependsOn])
	if cluster != nil {
		copyAnnotations(addOn, shared(cluster))
	}
}

// owned has the add-on go with its ClusterManagementAddOn. A reference to one that was deleted and made anew is
// replaced: with that one in it, the add-on would be taken for garbage.
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

// copyAnnotations keeps what an add-on shares with its cluster in sync: also what the cluster has no longer.
// Where somebody has enabled an add-on by hand and given it a value of its own, that one stays.
func copyAnnotations(addOn *addonv1beta1.ManagedClusterAddOn, wanted map[string]string) {
	byStrategy := addOn.Annotations[fleet.AnnotationInstalledBy] == fleet.InstalledByStrategy
	copied := map[string]bool{}
	for key := range strings.SplitSeq(addOn.Annotations[fleet.AnnotationFromCluster], ",") {
		copied[key] = true
	}
	var now []string
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if _, own := addOn.Annotations[key]; byStrategy || copied[key] || !own {
			metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, key, wanted[key])
			now = append(now, key)
		}
	}
	for key := range copied {
		if _, still := wanted[key]; !still {
			delete(addOn.Annotations, key)
		}
	}
	set(addOn, fleet.AnnotationFromCluster, strings.Join(now, ","))
}

// shared are the annotations of a cluster that its add-ons have, too.
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
