package clustermanager

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// Names of Deployments, after that of the ClusterManager, and of Services, after that or servicePrefix.
const (
	registrationController = "registration-controller"
	registrationWebhook    = fleet.WebhookRegistration
	workController         = "work-controller"
	workWebhook            = fleet.WebhookWork
	placementController    = "placement-controller"
	placementService       = "placement"
	addOnManager           = "addon-manager-controller"
	addOnWebhook           = fleet.WebhookAddOn
	grpcServer             = "grpc-server"
)

// servicePrefix is what the names of the Services of webhooks start with, in every hub: clients use these names.
const servicePrefix = "cluster-manager-"

// annotationService on the pods of a webhook is the name of its Service: they start anew, with a certificate for it, when that changes.
const annotationService = "capstan.io/webhook-service"

// Ports of webhooks, of the explanations of placements and of the gRPC server.
const (
	webhookPort = 9443
	debugPort   = 9443
	grpcPort    = 8090
)

// Where the pods see what.
const (
	hubKubeconfigDir   = "/var/run/secrets/hub"
	webhookCertDir     = "/tmp/k8s-webhook-server/serving-certs"
	placementDebugDir  = "/var/run/secrets/placement-debug"
	webhookSecretName  = "webhook-secret"
	hubKubeconfigName  = "kubeconfig"
	placementDebugName = "placement-debug"
)

func (p planned) settings() workload.Settings {
	settings := workload.Settings{
		Namespace: p.namespace, Replicas: p.replicas, Placement: p.Spec.NodePlacement, Resources: p.Spec.ResourceRequirement,
		PodLabels: map[string]string{fleet.LabelCreatedByClusterManager: p.Name},
	}
	maps.Copy(settings.PodLabels, p.labels())
	if p.pullSecret != nil {
		settings.PullSecret = p.pullSecret.Name
	}
	return settings
}

// components are the programs of the hub.
func (p planned) components() []workload.Component {
	components := []workload.Component{registration{p}.component(), placement{p}.component()}
	for _, webhook := range p.webhooks() {
		components = append(components, webhook.component())
	}
	if p.addOn.Enabled(featuregates.AddonManagement) {
		components = append(components, p.controller(addOnManager, p.Spec.AddOnManagerImagePullSpec, fleet.ServiceAccountAddOnManager,
			slices.Concat([]string{"/addon", "manager"}, p.addOn.Flags())))
	}
	if w := (work{p}); w.hasTasks() {
		components = append(components, w.component())
	}
	if servesGRPC(p.ClusterManager) {
		components = append(components, grpc{p}.component())
	}
	return components
}

// accountNames are the service accounts of the components.
func (p planned) accountNames() (names []string) {
	for _, component := range p.components() {
		names = append(names, component.ServiceAccount)
	}
	return names
}

// imageOf is the specified image. An image of Open Cluster Management without a tag is the default of the API, so that nobody has chosen
// it: the operator's own image has all programs.
func (p planned) imageOf(specified string) string {
	const defaults = "quay.io/open-cluster-management/"
	if name, isDefault := strings.CutPrefix(specified, defaults); specified == "" || isDefault && !strings.ContainsAny(name, ":@/") {
		return cmp.Or(p.image, specified)
	}
	return specified
}

// controller is a component with controllers.
func (p planned) controller(name, image, account string, args []string) workload.Component {
	component := workload.Component{
		Name: p.name(name), App: "clustermanager-" + name, Image: p.imageOf(image), ServiceAccount: account, Args: slices.Concat(args, p.tlsFlags),
		Env: append([]corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		}, p.namespaceEnv()...),
	}
	if p.replicas == 1 {
		component.Args = append(component.Args, "--disable-leader-election")
	}
	p.mountHubKubeconfig(&component, account, hubKubeconfigDir)
	return component
}

// namespaceEnv tells components where the service accounts of the hub are, if that is not what they assume. Programs of Open Cluster
// Management have no flag for it, and would not start with one.
func (p planned) namespaceEnv() []corev1.EnvVar {
	if p.namespace == fleet.NamespaceHub {
		return nil
	}
	return []corev1.EnvVar{{Name: fleet.EnvHubNamespace, Value: p.namespace}}
}

// mountHubKubeconfig gives a component of a hosted hub the kubeconfig of its service account there, in the directory.
func (p planned) mountHubKubeconfig(component *workload.Component, account, directory string) {
	if !p.hosted {
		return
	}
	component.Args = append(component.Args, "--kubeconfig="+directory+"/"+fleet.KeyKubeconfig)
	component.Volumes = append(component.Volumes, workload.SecretVolume(hubKubeconfigName, directory, accountSecret(account), false))
}

// accountSecret has the kubeconfig of a service account of a hosted hub.
func accountSecret(account string) string { return account + "-kubeconfig" }

// placement is the placement controllers of a hub, which explain placements on request.
type placement struct{ planned }

func (p placement) component() workload.Component {
	component := p.controller(placementController, p.Spec.PlacementImagePullSpec, fleet.ServiceAccountPlacementController,
		slices.Concat([]string{"/placement", "controller"}, p.placing.Flags()))
	if p.servesExplanations() {
		component.Args = append(component.Args, "--placement-debug-bind-address="+address(debugPort), "--placement-debug-cert-dir="+placementDebugDir)
		component.Volumes = append(component.Volumes,
			workload.SecretVolume(placementDebugName, placementDebugDir, fleet.SecretPlacementDebugServing, false))
		component.Ports = append(component.Ports, corev1.ContainerPort{Name: "debug", ContainerPort: debugPort})
	}
	return component
}

// servesExplanations reports whether the explanations of placements are served under a name that clients can verify: if the gate was
// switched on, and the operator may keep the certificate.
func (p placement) servesExplanations() bool {
	if p.unexplained || p.Spec.PlacementConfiguration == nil || !p.placing.Enabled(featuregates.PlacementDebugServer) {
		return false
	}
	return slices.ContainsFunc(p.Spec.PlacementConfiguration.FeatureGates, func(g operatorv1.FeatureGate) bool {
		return g.Feature == string(featuregates.PlacementDebugServer)
	})
}

// address to serve at a port of all addresses; 0 or less serves nothing.
func address(port int32) string {
	if port <= 0 {
		return "0"
	}
	return ":" + strconv.Itoa(int(port))
}
