// Package install tells where the agent of an add-on runs.
package install

import (
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// Namespace is that of the add-on's agent, on the cluster on which it runs (RG-60).
func Namespace(addOn *addonv1beta1.ManagedClusterAddOn) string {
	if addOn.Status.Namespace != "" {
		return addOn.Status.Namespace
	}
	if namespace := addOn.Annotations[fleet.AnnotationInstallNamespace]; namespace != "" {
		return namespace
	}
	return fleet.NamespaceAgentAddOn
}

// Hosted tells whether the add-on's agent runs on a hosting cluster. To the agent of the managed cluster that is the cluster that it
// runs in itself: a hosted add-on wants a hosted agent.
func Hosted(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return addOn.Annotations[fleet.AnnotationHostingClusterName] != ""
}
