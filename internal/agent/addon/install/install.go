// Package install tells where the agent of an add-on runs.
package install

import (
	"k8s.io/apimachinery/pkg/api/meta"

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
// runs in itself: a hosted add-on wants a hosted agent. The annotation alone does not say so: it is copied from the cluster to all of
// its add-ons (AM-03), and means nothing to those that do not know this mode. Managers of the others say whether there is such a
// cluster (AF-16), together with what they deploy. As long as a manager has said neither, it is not known.
func Hosted(addOn *addonv1beta1.ManagedClusterAddOn) (hosted, known bool) {
	says := func(condition string) bool {
		return meta.FindStatusCondition(addOn.Status.Conditions, condition) != nil
	}
	if addOn.Annotations[fleet.AnnotationHostingClusterName] == "" {
		return false, true
	}
	hosted = says(fleet.ConditionHostingClusterValidity)
	return hosted, hosted || says(fleet.ConditionManifestApplied)
}
