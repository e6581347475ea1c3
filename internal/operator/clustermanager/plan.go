package clustermanager

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	deployhub "github.com/capstan-io/capstan/deploy/hub"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/gates"
	"github.com/capstan-io/capstan/internal/operator/servingcerts"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// inputs are what a plan depends on, besides the ClusterManager.
type inputs struct {
	// namespace of the hub, on both clusters.
	namespace string
	replicas  int32
	// pullSecret is the Secret in the namespace of the operator to copy; nil if there is none.
	pullSecret *corev1.Secret
	tlsFlags   []string
	// image replaces images that nobody has chosen; empty if there is none.
	image string
	// agentImage is that of the agent in clusters that the hub imports; empty if there is none.
	agentImage string
	// accounts are the Secrets with the kubeconfigs of the service accounts of a hosted hub.
	accounts []client.Object
	// certificates are those that there are to be; nil before they are made.
	certificates *servingcerts.Certificates
	grpc         grpcInputs
	// unexplained leaves out that placements are explained under a name that clients can verify: the operator may not keep the certificate.
	unexplained bool
	// workDriver is the Secret in the namespace of the operator with the configuration of the broker of works; nil if there is none.
	workDriver *corev1.Secret
	// formerServices reports whether the API server of the hub still calls webhooks at Services that have the name of the ClusterManager.
	formerServices bool
	// syncLabels copies the labels of the ClusterManager to all objects.
	syncLabels bool
}

// plan is what there should be, in the order in which it is applied. In the mode Default, the hub and the management cluster are the same.
type plan struct {
	// crds are the API of the hub.
	crds []*apiextensionsv1.CustomResourceDefinition
	// hub has the namespace, the service accounts, their permissions and policies, on the hub.
	hub []client.Object
	// base has what the components need to start, on the management cluster.
	base []client.Object
	// deployments run the components, on the management cluster.
	deployments []*appsv1.Deployment
	// webhooks have the API server of the hub call the components, once these run.
	webhooks []client.Object
}

// onHub and onManagement are all objects of the plan, except the CRDs, which outlive their features.
func (p *plan) onHub() []client.Object { return slices.Concat(p.hub, p.webhooks) }

func (p *plan) onManagement() []client.Object { return slices.Concat(p.base, objects(p.deployments)) }

func (p *plan) all() []client.Object {
	return slices.Concat(objects(p.crds), p.onHub(), p.onManagement())
}

func objects[T client.Object](typed []T) (all []client.Object) {
	for _, object := range typed {
		all = append(all, object)
	}
	return all
}

// planned is a ClusterManager while its plan is made.
type planned struct {
	*operatorv1.ClusterManager
	inputs
	hosted                                     bool
	registration, work, placing, addOn, server gates.Values
}

func newPlanned(cm *operatorv1.ClusterManager, in inputs) planned {
	defaults := featuregates.Hub()
	p := planned{ClusterManager: cm, inputs: in, hosted: hosted(cm)}
	spec := cm.Spec
	p.registration = gates.Resolve(gates.HubRegistration, registrationOf(cm).FeatureGates, defaults)
	p.work = gates.Resolve(gates.HubWork, workOf(cm).FeatureGates, defaults)
	p.placing = gates.Resolve(gates.HubPlacement, ptr.Deref(spec.PlacementConfiguration, operatorv1.PlacementConfiguration{}).FeatureGates,
		defaults)
	p.addOn = gates.Resolve(gates.HubAddOn, ptr.Deref(spec.AddOnManagerConfiguration, operatorv1.AddOnManagerConfiguration{}).FeatureGates,
		defaults)
	if spec.ServerConfiguration != nil {
		p.server = gates.Resolve(gates.HubServer, spec.ServerConfiguration.FeatureGates, defaults)
	}
	return p
}

// namespaceOf is where the hub's components run, and where their service accounts are on the hub.
func namespaceOf(cm *operatorv1.ClusterManager) string {
	if hosted(cm) {
		return cm.Name
	}
	return fleet.NamespaceHub
}

func registrationOf(cm *operatorv1.ClusterManager) operatorv1.RegistrationHubConfiguration {
	return ptr.Deref(cm.Spec.RegistrationConfiguration, operatorv1.RegistrationHubConfiguration{})
}

func workOf(cm *operatorv1.ClusterManager) operatorv1.WorkConfiguration {
	return ptr.Deref(cm.Spec.WorkConfiguration, operatorv1.WorkConfiguration{})
}

// plan says what there should be.
func (p planned) plan() *plan {
	names := deployhub.Names{Namespace: p.namespace, ClusterManager: p.Name}
	result := &plan{
		crds:     p.crds(),
		hub:      slices.Concat(p.rights(names), deployhub.Policies(names)),
		base:     p.base(),
		webhooks: p.webhooks().configurations(names),
	}
	if p.hosted {
		result.hub = append(result.hub, p.webhooks().hostedServices()...)
	}
	if servesGRPC(p.ClusterManager) {
		result.hub = append(result.hub, deployhub.GRPC(names)...)
	}
	settings := p.settings()
	for _, component := range p.components() {
		deployment := component.Deployment(settings)
		deployment.Labels[workload.LabelApp] = component.Name // for clients, whatever that of the pods is
		result.deployments = append(result.deployments, deployment)
	}
	frame.AddLabels(p.labels(), result.all()...)
	return result
}

// withoutFormerServices is the plan once all components run that has been applied: the API server calls the Services that stay.
func (p planned) withoutFormerServices(applied *plan) *plan {
	p.formerServices = false
	result := p.plan()
	result.deployments = applied.deployments
	return result
}

// rights are the namespace on the hub, and the service accounts of what runs with their permissions. Those that an earlier version had
// given in another role come first, so that they are never missing.
func (p planned) rights(names deployhub.Names) []client.Object {
	rights := deployhub.Rights(names, p.accountNames())
	if p.registration.Enabled(featuregates.ClusterProfile) {
		rights = slices.Concat(deployhub.ClusterProfiles(names), rights)
	}
	if p.registration.Enabled(featuregates.ClusterImporter) {
		rights = append(rights, deployhub.ClusterImporter(names)...)
	}
	if p.addOn.Enabled(featuregates.AddonManagement) && p.addOn.Enabled(featuregates.GitOpsCluster) {
		rights = append(rights, deployhub.Applications(names)...)
	}
	if p.placing.Enabled(featuregates.SIGPlacementDecision) {
		rights = append(rights, deployhub.SIGPlacementDecisions(names)...)
	}
	for _, object := range rights {
		if namespace, ok := object.(*corev1.Namespace); ok {
			metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, fleet.AnnotationOpenShiftWorkload, fleet.OpenShiftWorkloadManagement)
		}
	}
	registration{p}.annotateAWSRole(rights)
	return rights
}

// labels are those of the ClusterManager to copy.
func (p planned) labels() map[string]string {
	if !p.syncLabels {
		return nil
	}
	return frame.LabelsToCopy(p.Labels)
}

// base is what the components need to start, and their disruption budgets.
func (p planned) base() []client.Object {
	var base []client.Object
	if p.hosted {
		base = p.hostedAccounts()
		base = append(base, p.accounts...)
	}
	if p.pullSecret != nil {
		base = append(base, frame.CopyOf(p.pullSecret, p.namespace))
	}
	if c := p.certificates; c != nil {
		base = append(base, c.Authority, c.Bundle)
		base = append(base, objects(c.Serving)...)
	}
	base = append(base, p.services()...)
	if servesGRPC(p.ClusterManager) {
		base = append(base, grpc{p}.configMap())
	}
	if broker, _ := (work{p}).broker(); broker != nil {
		base = append(base, frame.CopyOf(broker, p.namespace))
	}
	if gates.NetworkPoliciesEnabled(registrationOf(p.ClusterManager).FeatureGates) {
		base = append(base, p.networkPolicies()...)
	}
	return append(base, p.disruptionBudgets()...)
}

// servers are those of the hub that need a certificate, with the names under which the API server reaches them.
func (p planned) servers() []servingcerts.Server {
	inCluster := func(services ...string) (hosts []string) {
		for _, service := range services {
			hosts = append(hosts, fmt.Sprintf("%s.%s.svc", service, p.namespace))
		}
		return hosts
	}
	var servers []servingcerts.Server
	for _, webhook := range p.webhooks() {
		servers = append(servers, servingcerts.Server{Secret: webhook.secret, Hosts: inCluster(webhook.services()...)})
	}
	if (placement{p}).servesExplanations() {
		servers = append(servers, servingcerts.Server{Secret: fleet.SecretPlacementDebugServing, Hosts: inCluster(p.name(placementService))})
	}
	if servesGRPC(p.ClusterManager) {
		servers = append(servers, servingcerts.Server{Secret: fleet.SecretGRPCServing, Hosts: grpc{p}.hosts()})
	}
	return servers
}

// name is the name of an object of this hub.
func (p planned) name(suffix string) string { return p.Name + "-" + suffix }
