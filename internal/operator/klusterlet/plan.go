package klusterlet

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/gates"
)

// inputs are what a plan is made of, besides the Klusterlet.
type inputs struct {
	// replicas of each agent.
	replicas int32
	// defaultImage is that of agents for which the Klusterlet names none.
	defaultImage string
	// awsCLIImage is the image with the AWS command line, for agents that register by AWS IAM; empty if they make tokens themselves.
	awsCLIImage string
	// addOnNamespace reports whether there is a namespace for the agents of add-ons.
	addOnNamespace bool
	// syncLabels reports whether all objects have the labels of the Klusterlet.
	syncLabels bool
	// pullSecret, in the namespace of the operator, is copied to where the agents run. It may be nil.
	pullSecret *corev1.Secret
	// tlsProfile, in the namespace of the operator, may be nil.
	tlsProfile *corev1.ConfigMap
	// clusterName is that of the credential that the registration agent has obtained; empty until it has.
	clusterName string
	// suspendWork keeps the work agent from running: it has no credential yet.
	suspendWork bool
}

// plan is what there should be for a Klusterlet, in the order in which it is applied.
type plan struct {
	// crds and shared are on the managed cluster and serve all Klusterlets.
	crds   []*apiextensionsv1.CustomResourceDefinition
	shared []client.Object
	// managed is on the managed cluster: the rights of the agents there.
	managed []client.Object
	// management is where the agents run, without what runs them.
	management []client.Object
	// kubeconfigs of the managed cluster are made for agents that run elsewhere.
	kubeconfigs []frame.Kubeconfig
	// deployments run the agents.
	deployments []client.Object
}

// layout is what the names of the objects follow from.
type layout struct {
	klusterlet *operatorv1.Klusterlet
	// hosted agents run on another cluster than the one that they manage. single agents do registration and work in one process.
	hosted, single bool
	// agents is the namespace in which they run, and accounts that of their service accounts on the managed cluster. Unless hosted, they are
	// the same.
	agents, accounts string
	// registrationAccount and workAccount are the same if single.
	registrationAccount, workAccount string
	// registrationGates and workGates are the feature gates.
	registrationGates, workGates gates.Values
	networkPolicies              bool
}

func layoutOf(k *operatorv1.Klusterlet) layout {
	mode := k.Spec.DeployOption.Mode
	l := layout{
		klusterlet: k,
		hosted:     mode == operatorv1.InstallModeHosted || mode == operatorv1.InstallModeSingletonHosted,
		single:     mode == operatorv1.InstallModeSingleton || mode == operatorv1.InstallModeSingletonHosted,
		accounts:   cmp.Or(k.Spec.Namespace, fleet.NamespaceAgent),

		registrationAccount: fleet.KlusterletRegistrationServiceAccount(k.Name),
		workAccount:         fleet.KlusterletWorkServiceAccount(k.Name),
	}
	l.agents = l.accounts
	if l.hosted {
		l.agents = k.Name
	}
	if l.single {
		l.registrationAccount = l.workAccount
	}
	registration, work := registrationOf(k), workOf(k)
	defaults := featuregates.Agent()
	l.registrationGates = gates.Resolve(gates.AgentRegistration, registration.FeatureGates, defaults)
	l.workGates = gates.Resolve(gates.AgentWork, work.FeatureGates, defaults)
	l.networkPolicies = gates.NetworkPoliciesEnabled(registration.FeatureGates)
	return l
}

// registrationOf and workOf are the configurations of the agents, empty if there are none.
func registrationOf(k *operatorv1.Klusterlet) operatorv1.RegistrationConfiguration {
	return ptr.Deref(k.Spec.RegistrationConfiguration, operatorv1.RegistrationConfiguration{})
}

func workOf(k *operatorv1.Klusterlet) operatorv1.WorkAgentConfiguration {
	return ptr.Deref(k.Spec.WorkConfiguration, operatorv1.WorkAgentConfiguration{})
}

// bootstrapSecrets are the names of the Secrets with the kubeconfigs to register with.
func (l layout) bootstrapSecrets() []string {
	if !l.multipleHubs() {
		return []string{fleet.SecretBootstrapHubKubeconfig}
	}
	var names []string
	for _, secret := range registrationOf(l.klusterlet).BootstrapKubeConfigs.LocalSecrets.KubeConfigSecrets {
		names = append(names, secret.Name)
	}
	return names
}

// multipleHubs reports whether the agent chooses among several hubs.
func (l layout) multipleHubs() bool {
	configs := registrationOf(l.klusterlet).BootstrapKubeConfigs
	return configs.Type == operatorv1.BootstrapKubeConfigsLocalSecrets && configs.LocalSecrets != nil &&
		l.registrationGates.Enabled(featuregates.MultipleHubs)
}

// grpc reports whether the agent reaches the hub by its gRPC server.
func (l layout) grpc() bool {
	return registrationOf(l.klusterlet).RegistrationDriver.AuthType == operatorv1.RegistrationAuthTypeGRPC
}

// planFor says what there should be.
func planFor(l layout, in inputs) plan {
	p := plan{crds: crds.ManagedCluster()}
	if l.registrationGates.Enabled(featuregates.ClusterProperty) {
		p.crds = append(p.crds, crds.ClusterProperties()...)
	}
	if in.addOnNamespace {
		p.shared = append(p.shared, newNamespace(fleet.NamespaceAgentAddOn, map[string]string{fleet.LabelAddOnAgentNamespace: "true"}))
	}
	p.managed = slices.Concat(l.namespaceAndAccounts(l.accounts), l.managedRights())
	if in.addOnNamespace {
		p.managed = append(p.managed, l.accountRights()...)
	}
	if l.hosted {
		p.management = l.namespaceAndAccounts(l.agents)
		p.kubeconfigs = l.kubeconfigs()
	}
	p.management = slices.Concat(p.management, l.managementRights(), l.settings(in))
	if l.networkPolicies {
		p.management = append(p.management, l.policies()...)
	}
	p.deployments = l.deployments(in)
	if in.syncLabels {
		frame.AddLabels(frame.LabelsToCopy(l.klusterlet.Labels), slices.Concat(p.managed, p.management, p.deployments)...)
	}
	return p
}

// onManagement is what there should be on the cluster where the agents run, except Secrets with kubeconfigs of the managed cluster.
func (p plan) onManagement() []client.Object { return slices.Concat(p.management, p.deployments) }

func newNamespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels,
		Annotations: map[string]string{fleet.AnnotationOpenShiftWorkload: "management"}}}
}

// namespaceAndAccounts are a namespace with the service accounts. The Secret to pull images with is named by the pods: some platforms write
// into the list of an account, which can have one writer only.
func (l layout) namespaceAndAccounts(namespace string) []client.Object {
	objects := []client.Object{newNamespace(namespace, map[string]string{fleet.LabelKlusterlet: l.klusterlet.Name})}
	for _, name := range l.accountNames() {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if pair := l.aws(); pair != nil && namespace == l.agents { // where the pods are
			account.Annotations = map[string]string{fleet.AnnotationEKSRole: pair.ManagedRoleARN()}
		}
		objects = append(objects, account)
	}
	return objects
}

func (l layout) accountNames() []string {
	return slices.Compact([]string{l.registrationAccount, l.workAccount})
}

// kubeconfigs are those by which hosted agents reach the managed cluster.
func (l layout) kubeconfigs() []frame.Kubeconfig {
	of := func(secret, account string) frame.Kubeconfig {
		return frame.Kubeconfig{Secret: types.NamespacedName{Namespace: l.agents, Name: secret},
			Account: types.NamespacedName{Namespace: l.accounts, Name: account}}
	}
	if l.single {
		return []frame.Kubeconfig{of(fleet.SecretExternalManagedKubeconfigAgent, l.workAccount)}
	}
	return []frame.Kubeconfig{of(fleet.SecretExternalManagedKubeconfigRegistration, l.registrationAccount),
		of(fleet.SecretExternalManagedKubeconfigWork, l.workAccount)}
}

// settings are the objects that the pods of the agents refer to.
func (l layout) settings(in inputs) (objects []client.Object) {
	if in.pullSecret != nil {
		objects = append(objects, frame.CopyOf(in.pullSecret, l.agents))
	}
	if bundles := l.externalCAs(); len(bundles) > 0 {
		data := map[string]string{}
		for _, bundle := range bundles {
			data[bundle.key] = string(bundle.pem)
		}
		objects = append(objects,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.agents, Name: l.externalCAConfigMap()}, Data: data})
	}
	return objects
}

// copyOfConfigMap is the ConfigMap in another namespace.
func copyOfConfigMap(source *corev1.ConfigMap, namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: source.Name}, Data: source.Data,
		BinaryData: source.BinaryData}
}
