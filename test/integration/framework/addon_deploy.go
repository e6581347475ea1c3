package framework

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PreDelete is the annotation of hooks that run before the rest is deleted.
const (
	PreDelete       = "addon.open-cluster-management.io/addon-pre-delete"
	HostedLocation  = "addon.open-cluster-management.io/hosted-manifest-location"
	HostingCluster  = "addon.open-cluster-management.io/hosting-cluster-name"
	DeletionOrphan  = "addon.open-cluster-management.io/deletion-orphan"
	PreDeleteHooks  = "HookManifestCompleted"
	HookTimeout     = "capstan.io/pre-delete-timeout"
	HooksUnfinished = "HookManifestIsNotCompleted"
)

// Annotated is an object with annotations.
func Annotated[T client.Object](o T, pairs ...string) T {
	annotations := map[string]string{}
	for key, value := range o.GetAnnotations() {
		annotations[key] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		annotations[pairs[i]] = pairs[i+1]
	}
	o.SetAnnotations(annotations)
	return o
}
