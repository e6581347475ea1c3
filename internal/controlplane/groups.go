package controlplane

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/discovery"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // registers the types served
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	admissionregistrationrest "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	certificatesrest "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
)

// servedGroups are the API groups of the hub in addition to CRDs and APIServices, all at their stable version. Of the core
// group there is what does not run containers: namespaces, config maps, secrets, service accounts, events, quotas.
func servedGroups() *serverstorage.ResourceConfig {
	served := serverstorage.NewResourceConfig()
	served.EnableVersions(
		corev1.SchemeGroupVersion,
		admissionregistrationv1.SchemeGroupVersion,
		authenticationv1.SchemeGroupVersion,
		authorizationv1.SchemeGroupVersion,
		certificatesv1.SchemeGroupVersion,
		coordinationv1.SchemeGroupVersion,
		eventsv1.SchemeGroupVersion,
		flowcontrolv1.SchemeGroupVersion,
		rbacv1.SchemeGroupVersion,
	)
	return served
}

// storageProviders implement the served groups. Their order is that of discovery.
func storageProviders(c *controlplaneapiserver.CompletedConfig,
	d discovery.DiscoveryInterface) []controlplaneapiserver.RESTStorageProvider {
	authn, authz := c.Generic.Authentication, c.Generic.Authorization.Authorizer
	return []controlplaneapiserver.RESTStorageProvider{
		c.NewCoreGenericConfig(),
		authenticationrest.RESTStorageProvider{Authenticator: authn.Authenticator, APIAudiences: authn.APIAudiences},
		authorizationrest.RESTStorageProvider{Authorizer: authz, RuleResolver: c.Generic.RuleResolver},
		certificatesrest.RESTStorageProvider{Authorizer: authz, Generic: true},
		coordinationrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: authz},
		flowcontrolrest.RESTStorageProvider{InformerFactory: c.Generic.SharedInformerFactory},
		admissionregistrationrest.RESTStorageProvider{Authorizer: authz, DiscoveryClient: d},
		eventsrest.RESTStorageProvider{TTL: c.EventTTL},
	}
}

// definitionRoots are the definitions, or groups of them, that the hub's API starts from.
var definitionRoots = []string{
	"io.k8s.api.core.v1.Namespace", "io.k8s.api.core.v1.NamespaceList",
	"io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.ConfigMapList",
	"io.k8s.api.core.v1.Secret", "io.k8s.api.core.v1.SecretList",
	"io.k8s.api.core.v1.ServiceAccount", "io.k8s.api.core.v1.ServiceAccountList",
	"io.k8s.api.core.v1.Event", "io.k8s.api.core.v1.EventList",
	"io.k8s.api.core.v1.ResourceQuota", "io.k8s.api.core.v1.ResourceQuotaList",
	"io.k8s.api.admissionregistration.v1.",
	"io.k8s.api.authentication.v1.",
	"io.k8s.api.authorization.v1.",
	"io.k8s.api.certificates.v1.",
	"io.k8s.api.coordination.v1.",
	"io.k8s.api.events.v1.",
	"io.k8s.api.flowcontrol.v1.",
	"io.k8s.api.rbac.v1.",
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
	"io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.",
	"io.k8s.apimachinery.pkg.",
}

// servedDefinitions are the OpenAPI definitions of what the hub serves, and of what they refer to. Those of all of
// Kubernetes would take 20 MB of memory for as long as the hub runs.
func servedDefinitions(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
	all := generatedopenapi.GetOpenAPIDefinitions(ref)
	served := map[string]openapicommon.OpenAPIDefinition{}
	var keep func(name string)
	keep = func(name string) {
		definition, found := all[name]
		if _, kept := served[name]; kept || !found {
			return
		}
		served[name] = definition
		for _, dependency := range definition.Dependencies {
			keep(dependency)
		}
	}
	for name := range all {
		if slices.ContainsFunc(definitionRoots, func(root string) bool {
			return name == root || strings.HasSuffix(root, ".") && strings.HasPrefix(name, root)
		}) {
			keep(name)
		}
	}
	return served
}
