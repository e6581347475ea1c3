package installation

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Kinds that are read or deleted by name.
var (
	KindNamespace          = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	KindSecret             = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	KindConfigMap          = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	KindServiceAccount     = schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
	KindPod                = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	KindEvent              = schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	KindDeployment         = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	KindStatefulSet        = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	KindDaemonSet          = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	KindClusterRole        = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}
	KindClusterRoleBinding = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"}
	KindRole               = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}
	KindRoleBinding        = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}
	KindCSR                = schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"}
	KindCRD                = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

	KindValidatingWebhooks = admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
	KindMutatingWebhooks   = admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration")

	KindClusterManager      = operatorv1.GroupVersion.WithKind("ClusterManager")
	KindKlusterlet          = operatorv1.GroupVersion.WithKind("Klusterlet")
	KindAppliedManifestWork = workv1.GroupVersion.WithKind("AppliedManifestWork")
)

// Names of the custom resources that the operators install.
const (
	CRDKlusterlets          = "klusterlets.operator.open-cluster-management.io"
	CRDAppliedManifestWorks = "appliedmanifestworks.work.open-cluster-management.io"
	CRDClusterClaims        = "clusterclaims.cluster.open-cluster-management.io"
	CRDClusterProperties    = "clusterproperties.about.k8s.io"
)
