package fleet

import (
	"strings"
	"testing"
)

// RG-06, RG-09, RG-53, RG-60, RG-61, AF-04, AM-34, AM-40: each of its rows, for the cluster c1, the agent a1 and the
// add-on hello.
func TestNamesOfTheContract(t *testing.T) {
	t.Parallel()
	const user = "system:open-cluster-management:cluster:c1:addon:hello:agent:"
	words := func(all ...string) string { return strings.Join(all, " ") }
	for row, test := range map[string]struct{ got, want string }{
		"user of a cluster's agent": {ClusterUser("c1", "a1"), "system:open-cluster-management:c1:a1"},
		"groups of a cluster's agent": {words(ClusterGroups("c1")...),
			"system:open-cluster-management:c1 system:open-cluster-management:managed-clusters"},
		"cluster that hosts a standalone hub": {LabelSelfManagement,
			"multicluster-controlplane.open-cluster-management.io/selfmanagement"},
		"AWS group": {AWSClusterGroup("c1"), "open-cluster-management:c1"},
		"request of a cluster": {words(ClusterCSRGenerateName("c1"), LabelClusterName, SignerKubeAPIServerClient, SignerGRPC),
			"c1- open-cluster-management.io/cluster-name kubernetes.io/kube-apiserver-client open-cluster-management.io/grpc"},
		"request of an add-on": {words(AddOnCSRGenerateName("c1", "hello"), LabelClusterName, LabelAddOnName, AddOnDNSName("hello")),
			"addon-c1-hello- open-cluster-management.io/cluster-name open-cluster-management.io/addon-name hello.addon.open-cluster-management.io"},
		"user of an add-on":                     {AddOnUser("c1", "hello", "a1"), user + "a1"},
		"user of the agent of an AddOnTemplate": {AddOnUser("c1", "hello", TemplateAgent("hello")), user + "hello-agent"},
		"groups of an add-on": {words(append(AddOnGroups("c1", "hello"), GroupAuthenticated)...),
			"system:open-cluster-management:cluster:c1:addon:hello system:open-cluster-management:addon:hello system:authenticated"},
		"user of an add-on with a token": {AddOnTokenUser("c1", "hello"), "system:serviceaccount:c1:hello-agent"},
		"service account of an add-on with a token": {words(AddOnServiceAccount("hello"), AddOnTokenRole("hello")),
			"hello-agent hello-token-role"},
		"bootstrap service account": {words(ServiceAccountBootstrap, NamespaceOperators, ServiceAccountLegacyBootstrap),
			"agent-registration-bootstrap open-cluster-management cluster-bootstrap"},
		"bootstrap token": {words(SecretBootstrapToken, GroupBootstrap), "bootstrap-token-ocmhub system:bootstrappers:managedcluster"},
		"bootstrap Secret": {words(SecretBootstrapHubKubeconfig, KeyKubeconfig, KeyConfig),
			"bootstrap-hub-kubeconfig kubeconfig config.yaml"},
		"hub kubeconfig Secret": {words(SecretHubKubeconfig, KeyKubeconfig, KeyTLSCert, KeyTLSKey, KeyClusterName, KeyAgentName),
			"hub-kubeconfig-secret kubeconfig tls.crt tls.key cluster-name agent-name"},
		"layout of a kubeconfig": {words(KubeconfigContext, KubeconfigUser, KubeconfigNamespace),
			"default-context default-auth configuration"},
		"Secrets of a hosted Klusterlet": {words(SecretExternalManagedKubeconfig, SecretExternalManagedKubeconfigRegistration,
			SecretExternalManagedKubeconfigWork, SecretExternalManagedKubeconfigAgent),
			"external-managed-kubeconfig external-managed-kubeconfig-registration external-managed-kubeconfig-work external-managed-kubeconfig-agent"},
		"Secret of a hosted ClusterManager": {SecretExternalHubKubeconfig, "external-hub-kubeconfig"},
		"Secret of an add-on for the hub":   {words(AddOnHubKubeconfigSecret("hello"), KeyToken), "hello-hub-kubeconfig token"},
		"Secret of an add-on from a signer": {AddOnClientCertSecret("hello", "example.com/signer"),
			"hello-example.com-signer-client-cert"},
		"credentials for images":                  {SecretImagePullCredentials, "open-cluster-management-image-pull-credentials"},
		"configuration of the transport of works": {words(SecretWorkDriverConfig, KeyConfig), "work-driver-config config.yaml"},
		"configuration of imports":                {words(SecretClusterImportConfig, KeyHelmValues), "cluster-import-config values.yaml"},
		"CA of the hub's servers": {words(SecretSigner, ConfigMapCABundle, KeyCABundle),
			"signer-secret ca-bundle-configmap ca-bundle.crt"},
		"serving certificates of the hub's webhooks": {words(SecretRegistrationServing, SecretWorkServing, SecretAddOnServing),
			"registration-webhook-serving-cert work-webhook-serving-cert addon-webhook-serving-cert"},
		"other serving certificates of the hub": {words(SecretGRPCServing, SecretPlacementDebugServing, ConfigMapGRPCServer, KeyConfig),
			"grpc-server-serving-cert placement-debug-serving-cert grpc-server-config config.yaml"},
		"profile of TLS": {words(ConfigMapTLSProfile, KeyTLSProfileMinVersion, KeyTLSProfileCipherSuites),
			"ocm-tls-profile minTLSVersion cipherSuites"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", row, test.got, test.want)
		}
	}
}
