package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Namespaces. Besides these, each accepted cluster has one of its own name on the hub.
const (
	// NamespaceOperators holds the operators and the bootstrap service account.
	NamespaceOperators = "open-cluster-management"
	// NamespaceHub holds the components of a hub that an operator installed.
	NamespaceHub = "open-cluster-management-hub"
	// NamespaceAgent holds the agent on a managed cluster, unless its Klusterlet says otherwise.
	NamespaceAgent = "open-cluster-management-agent"
	// NamespaceAgentAddOn holds the agents of add-ons on a managed cluster, unless they say otherwise.
	NamespaceAgentAddOn = "open-cluster-management-agent-addon"
	// NamespaceAddOn holds the hub side of add-ons installed with Helm, and the settings of those that are built in.
	NamespaceAddOn = "open-cluster-management-addon"
	// NamespaceCredentials holds on a hub, unless configured otherwise, the Secrets by which requests reach clusters.
	NamespaceCredentials = "open-cluster-management-credentials"
)

// HeaderClusterAuthorization of a request to SubresourceProxy of a ManagedCluster is the header Authorization of the request to the
// cluster, which then is not one of the user of the hub. It is an extension.
const HeaderClusterAuthorization = "Capstan-Cluster-Authorization"

// ConfigMapHubAccess is, in the namespace of the agent on a managed cluster, what narrows what users of the hub may request of the cluster.
// Without it, RBAC of the cluster alone says what they may. It is an extension.
const ConfigMapHubAccess = "hub-access"

// ConfigMapHubConnection is, in the namespace where an agent runs, what the agent says to its operator while it does not reach the hub:
// since when, by RFC 3339, and why. Without it, the agent reaches the hub, or has not tried to. It is an extension.
const (
	ConfigMapHubConnection  = "klusterlet-hub-connection"
	KeyHubConnectionSince   = "since"
	KeyHubConnectionMessage = "message"
)

// ConfigMapExposedServices is, in NamespaceAddOn on a hub, what lists the services of managed clusters that are reached through the hub.
// Without it none is.
const ConfigMapExposedServices = "cluster-proxy-exposed-services"

// ManagedClusterSets that every hub has.
const (
	// ClusterSetDefault has the clusters that are in no other exclusive set.
	ClusterSetDefault = "default"
	// ClusterSetGlobal has all clusters.
	ClusterSetGlobal = "global"
)

// Service accounts of the hub.
const (
	// ServiceAccountBootstrap in NamespaceOperators is whose token agents join with.
	ServiceAccountBootstrap = "agent-registration-bootstrap"
	// ServiceAccountLegacyBootstrap was used before ServiceAccountBootstrap.
	ServiceAccountLegacyBootstrap = "cluster-bootstrap"
	// ServiceAccountClusterManager in NamespaceOperators is that of the ClusterManager operator.
	ServiceAccountClusterManager = "cluster-manager"
	// ServiceAccountKlusterlet in NamespaceOperators is that of the Klusterlet operator.
	ServiceAccountKlusterlet = "klusterlet"

	// Those in the namespace of the hub, one for each component.
	ServiceAccountRegistrationController = "registration-controller-sa"
	ServiceAccountRegistrationWebhook    = "registration-webhook-sa"
	ServiceAccountWorkController         = "work-controller-sa"
	ServiceAccountWorkWebhook            = "work-webhook-sa"
	ServiceAccountPlacementController    = "placement-controller-sa"
	ServiceAccountAddOnManager           = "addon-manager-controller-sa"
	ServiceAccountAddOnWebhook           = "addon-webhook-sa"
	ServiceAccountGRPCServer             = "grpc-server-sa"
)

// Webhooks of a hub. Their Deployments are those of WebhookDeployments.
const (
	WebhookRegistration = "registration-webhook"
	WebhookWork         = "work-webhook"
	WebhookAddOn        = "addon-webhook"
)

// WebhookDeployments are the Deployments of the webhooks that the hub of a ClusterManager has.
func WebhookDeployments(clusterManager string) []string {
	return []string{clusterManager + "-" + WebhookRegistration, clusterManager + "-" + WebhookWork, clusterManager + "-" + WebhookAddOn}
}

// Leases.
const (
	// ClusterNamespaceLease is the lease in the namespace of a cluster that its agent renews.
	ClusterNamespaceLease = "managed-cluster-lease"
	// LeaseRegistrationAgent, LeaseWorkAgent and LeaseKlusterletAgent, which is of both in one process, are in the namespace of an agent:
	// several replicas of it elect by them the one that acts.
	LeaseRegistrationAgent = "registration-agent-lock"
	LeaseWorkAgent         = "work-agent-lock"
	LeaseKlusterletAgent   = "klusterlet-agent-lock"
)

// EnvBootstrapConfigs in the environment of a work agent has the paths of the credentials to register with, with commas between them, where
// there are several hubs.
const EnvBootstrapConfigs = "CAPSTAN_BOOTSTRAP_CONFIGS"

// EnvHubNamespace in the environment of a component of a hub is the namespace of the hub's service accounts, where that is not
// NamespaceHub.
const EnvHubNamespace = "CAPSTAN_HUB_NAMESPACE"

// EnvNilExecutorValidating in the environment of a webhook is "true" where the feature gate NilExecutorValidating, which is one of works,
// is on for the AddOnTemplates that it checks.
const EnvNilExecutorValidating = "CAPSTAN_NIL_EXECUTOR_VALIDATING"

// Secrets with credentials, and what is in them.
const (
	// SecretBootstrapHubKubeconfig in the namespace of the agent is what it joins with.
	SecretBootstrapHubKubeconfig = "bootstrap-hub-kubeconfig"
	// SecretHubKubeconfig in the namespace of the agent is its own access to the hub.
	SecretHubKubeconfig = "hub-kubeconfig-secret"
	// SecretExternalManagedKubeconfig in the namespace of a hosted Klusterlet leads to the managed cluster.
	SecretExternalManagedKubeconfig = "external-managed-kubeconfig"
	// SecretExternalManagedKubeconfigRegistration is what the operator makes of it for the registration agent.
	SecretExternalManagedKubeconfigRegistration = "external-managed-kubeconfig-registration"
	// SecretExternalManagedKubeconfigWork is what the operator makes of it for the work agent.
	SecretExternalManagedKubeconfigWork = "external-managed-kubeconfig-work"
	// SecretExternalManagedKubeconfigAgent is what the operator makes of it for both agents in one.
	SecretExternalManagedKubeconfigAgent = "external-managed-kubeconfig-agent"
	// SecretExternalHubKubeconfig in the namespace of a hosted ClusterManager leads to the hub.
	SecretExternalHubKubeconfig = "external-hub-kubeconfig"
	// SecretImagePullCredentials is copied to wherever images are pulled.
	SecretImagePullCredentials = "open-cluster-management-image-pull-credentials"
	// SecretWorkDriverConfig configures the transport of works, when that is not the API server.
	SecretWorkDriverConfig = "work-driver-config"
	// SecretClusterImportConfig in the namespace of a cluster holds Helm values to import it with.
	SecretClusterImportConfig = "cluster-import-config"
	// SuffixCAPIKubeconfig ends the name of the Secret with the kubeconfig of a Cluster API cluster, under KeyCAPIKubeconfig.
	SuffixCAPIKubeconfig = "-kubeconfig"
	KeyCAPIKubeconfig    = "value"
	// SecretBootstrapToken in kube-system is the bootstrap token of a hub installed with Helm.
	SecretBootstrapToken = "bootstrap-token-ocmhub"

	// Keys of these secrets, which are file names as well.
	KeyKubeconfig  = "kubeconfig"
	KeyTLSCert     = "tls.crt"
	KeyTLSKey      = "tls.key"
	KeyClusterName = "cluster-name"
	KeyAgentName   = "agent-name"
	KeyToken       = "token"
	KeyConfig      = "config.yaml"
	KeyHelmValues  = "values.yaml"
)

// Renderers make the configuration of clusters that the hub imports.
const (
	// RendererAuto makes it up: a token to join with, and the images of the hub.
	RendererAuto = "render-auto"
	// RendererFromConfigSecret reads it from SecretClusterImportConfig.
	RendererFromConfigSecret = "render-from-config-secret"
)

// ImportRenderers returns the names of the renderers.
func ImportRenderers() []string { return []string{RendererAuto, RendererFromConfigSecret} }

// Add-ons that are built into the hub and the agents of clusters.
const (
	// ClusterManagerOfProfiles is what ClusterProfiles call the hub: their cluster manager, and the access provider of their clusters.
	ClusterManagerOfProfiles = "open-cluster-management"
	// AddOnManagedServiceAccount brings tokens of service accounts on managed clusters to the hub.
	AddOnManagedServiceAccount = "managed-serviceaccount"
	// ClusterRoleManagedServiceAccount has the rights of agents with it in the namespaces of their clusters, in an existing cluster.
	ClusterRoleManagedServiceAccount = "open-cluster-management:managed-serviceaccount:addon-agent"
	// AddOnClusterGateway lets users of the hub reach managed clusters under an account that the hub has there.
	AddOnClusterGateway = "cluster-gateway"
	// AddOnClusterProxy lets users of the hub reach managed clusters through it.
	AddOnClusterProxy = "cluster-proxy"
)

// Names within the kubeconfig of an agent. Its cluster is named as in the bootstrap kubeconfig.
const (
	KubeconfigContext   = "default-context"
	KubeconfigUser      = "default-auth"
	KubeconfigNamespace = "configuration"
)

// Serving certificates and TLS settings in the namespace of a hub.
const (
	SecretSigner                = "signer-secret"
	SecretRegistrationServing   = "registration-webhook-serving-cert"
	SecretWorkServing           = "work-webhook-serving-cert"
	SecretAddOnServing          = "addon-webhook-serving-cert"
	SecretGRPCServing           = "grpc-server-serving-cert"
	SecretPlacementDebugServing = "placement-debug-serving-cert"
	ConfigMapCABundle           = "ca-bundle-configmap"
	KeyCABundle                 = "ca-bundle.crt"
	ConfigMapGRPCServer         = "grpc-server-config"
	ConfigMapTLSProfile         = "ocm-tls-profile"
	KeyTLSProfileMinVersion     = "minTLSVersion"
	KeyTLSProfileCipherSuites   = "cipherSuites"
)

// KlusterletRegistrationServiceAccount is the service account of the registration agent of a Klusterlet.
func KlusterletRegistrationServiceAccount(klusterlet string) string {
	return klusterlet + "-registration-sa"
}

// KlusterletWorkServiceAccount is the service account of the work agent of a Klusterlet.
func KlusterletWorkServiceAccount(klusterlet string) string {
	return klusterlet + "-work-sa"
}

// AddOnHubKubeconfigSecret is the secret with which an add-on reaches the hub.
func AddOnHubKubeconfigSecret(addOn string) string {
	return addOn + "-hub-kubeconfig"
}

// AddOnClientCertSecret is the secret with the certificate of an add-on by a signer other than
// SignerKubeAPIServerClient.
func AddOnClientCertSecret(addOn, signer string) string {
	return addOn + "-" + strings.ReplaceAll(signer, "/", "-") + "-client-cert"
}

// SignerVariable is the name of a signer as part of the names of variables, for the files with its certificate: EXAMPLE_COM_HELLO for
// example.com/hello. No two signers of an AddOnTemplate may have the same.
func SignerVariable(signer string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(signer))
}

// AddOnDeployWork is the name of a ManifestWork that deploys an add-on on its cluster; there are as many as its objects need.
func AddOnDeployWork(addOn string, index int) string {
	return "addon-" + addOn + "-deploy-" + strconv.Itoa(index)
}

// AddOnHostingDeployWork is the name of a ManifestWork that deploys an add-on of the namespace on its hosting cluster.
func AddOnHostingDeployWork(addOn, namespace string, index int) string {
	return "addon-" + addOn + "-deploy-hosting-" + namespace + "-" + strconv.Itoa(index)
}

// AddOnPreDeleteWork is the name of the ManifestWork with the pre-delete hooks of an add-on.
func AddOnPreDeleteWork(addOn string) string {
	return "addon-" + addOn + "-pre-delete"
}

// AddOnHostingPreDeleteWork is the name of the ManifestWork with those that run on the hosting cluster.
func AddOnHostingPreDeleteWork(addOn, namespace string) string {
	return "addon-" + addOn + "-pre-delete-hosting-" + namespace
}

// HubHash stands for a hub on its managed clusters: the SHA-256 of its URL in lower-case hexadecimal.
// The URL is that of the hub kubeconfig, unchanged.
func HubHash(hubURL string) string {
	sum := sha256.Sum256([]byte(hubURL))
	return hex.EncodeToString(sum[:])
}

// AppliedManifestWorkName is the name of the AppliedManifestWork of a ManifestWork: the hash and the name of the work, with a dash between.
// Where that is longer than names may be, it ends in a dash and a hash of the name of the work.
func AppliedManifestWorkName(hubHash, manifestWork string) string {
	const longest = 253
	name := hubHash + "-" + manifestWork
	if len(name) <= longest {
		return name
	}
	return strings.TrimRight(name[:longest-hashSuffix], "-.") + suffixOf(manifestWork)
}

// hashSuffix is how long a suffix is that stands for the rest of a name which is too long.
const hashSuffix = 17

// suffixOf is a dash and a hash of a name.
func suffixOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "-" + hex.EncodeToString(sum[:])[:hashSuffix-1]
}
