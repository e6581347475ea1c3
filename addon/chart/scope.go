package chart

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// outside has the cluster-scoped kinds of Kubernetes.
var outside = func() map[schema.GroupKind]bool {
	kinds := map[schema.GroupKind]bool{}
	for group, names := range map[string]string{
		"": "ComponentStatus Namespace Node PersistentVolume",
		"admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration " +
			"ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
		"authentication.k8s.io":        "SelfSubjectReview TokenReview",
		"authorization.k8s.io":         "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
		"certificates.k8s.io":          "CertificateSigningRequest ClusterTrustBundle",
		"flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
		"internal.apiserver.k8s.io":    "StorageVersion",
		"networking.k8s.io":            "IPAddress IngressClass ServiceCIDR",
		"node.k8s.io":                  "RuntimeClass",
		"rbac.authorization.k8s.io":    "ClusterRole ClusterRoleBinding",
		"resource.k8s.io":              "DeviceClass DeviceTaintRule ResourcePoolStatusRequest ResourceSlice",
		"scheduling.k8s.io":            "PriorityClass",
		"storage.k8s.io":               "CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass",
		"storagemigration.k8s.io":      "StorageVersionMigration",
	} {
		for name := range strings.FieldsSeq(names) {
			kinds[schema.GroupKind{Group: group, Kind: name}] = true
		}
	}
	return kinds
}()

// setNamespaces sets the namespace of the release on namespaced objects without a namespace, as Helm does. It knows the kinds of
// Kubernetes and those that the chart defines; objects of other kinds stay as they are.
func setNamespaces(objects []client.Object, namespace string) {
	defined := namespacedOf(objects)
	for _, object := range objects {
		kind := object.GetObjectKind().GroupVersionKind().GroupKind()
		ofKubernetes := len(kubernetesscheme.Scheme.VersionsForGroupKind(kind)) > 0 && !outside[kind]
		if object.GetNamespace() == "" && (ofKubernetes || defined[kind]) {
			object.SetNamespace(namespace)
		}
	}
}

// namespacedOf returns the namespaced kinds among those that the CustomResourceDefinitions define.
func namespacedOf(objects []client.Object) map[schema.GroupKind]bool {
	defined := map[schema.GroupKind]bool{}
	for _, object := range objects {
		definition, ok := object.(*unstructured.Unstructured)
		if !ok || !isDefinition(object) {
			continue
		}
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(definition.Object, "spec", "scope")
		defined[schema.GroupKind{Group: group, Kind: kind}] = scope == "Namespaced"
	}
	return defined
}
