package clustermanager

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

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

// servicePrefix is what the names of the Services of webhooks begin with, in every hub: clients look for these.
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
		PodLabels: p.labels(),
	}
	if p.pullSecret != nil {
		settings.PullSecret = p.pullSecret.Name
	}
	return settings
}

// components are the programs of the hub.
func (p planned) components() []workload.Component {
	components := []workload.Component{p.registrationController(), p.placementController()}
	for _, webhook := range p.webhookComponents() {
		components = append(components, webhook.component(p))
	}
	if p.addOn.Enabled(featuregates.AddonManagement) {
		components = append(components, p.controller(addOnManager, p.Spec.AddOnManagerImagePullSpec, fleet.ServiceAccountAddOnManager,
			slices.Concat([]string{"/addon", "manager"}, p.addOn.Flags())))
	}
	if p.hasWorkController() {
		components = append(components, p.workController())
	}
	if servesGRPC(p.ClusterManager) {
		components = append(components, p.grpcServer())
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
		Name: p.name(name), App: "clustermanager-" + name, Image: p.imageOf(image), ServiceAccount: account, Args: p.completed(args),
		Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
	}
	if p.replicas == 1 {
		component.Args = append(component.Args, "--disable-leader-election")
	}
	p.leadToHub(&component, account, hubKubeconfigDir)
	return component
}

func (p planned) completed(args []string) []string {
	return slices.Concat(args, p.tlsFlags)
}

// leadToHub gives a component of a hosted hub the kubeconfig of its service account there, in the directory.
func (p planned) leadToHub(component *workload.Component, account, directory string) {
	if !p.hosted {
		return
	}
	component.Args = append(component.Args, "--kubeconfig="+directory+"/"+fleet.KeyKubeconfig)
	component.Volumes = append(component.Volumes, workload.SecretVolume(hubKubeconfigName, directory, accountSecret(account), false))
}

// accountSecret has the kubeconfig of a service account of a hosted hub.
func accountSecret(account string) string { return account + "-kubeconfig" }

func (p planned) registrationController() workload.Component {
	args := slices.Concat([]string{"/registration", "controller"}, p.registration.Flags())
	args = slices.Concat(args, p.driverFlags(), p.importFlags())
	if labels := p.labels(); len(labels) > 0 {
		args = append(args, "--labels="+joined(labels))
	}
	component := p.controller(registrationController, p.Spec.RegistrationImagePullSpec, fleet.ServiceAccountRegistrationController, args)
	if servesGRPC(p.ClusterManager) {
		p.signWith(&component)
	}
	return component
}

// driverFlags say how clusters register, and whose are approved without an administrator.
func (p planned) driverFlags() (flags []string) {
	if drivers := p.drivers(); !slices.Equal(drivers, []string{string(operatorv1.RegistrationAuthTypeCSR)}) {
		flags = append(flags, "--enabled-registration-drivers="+strings.Join(drivers, ","))
	}
	flags = append(flags, p.awsFlags()...)
	if !p.registration.Enabled(featuregates.ManagedClusterAutoApproval) {
		return flags
	}
	if users := p.approvedUsers(); len(users) > 0 {
		flags = append(flags, "--auto-approved-csr-users="+strings.Join(users, ","))
	}
	if users := p.approvedGRPCUsers(); len(users) > 0 {
		flags = append(flags, "--auto-approved-grpc-users="+strings.Join(users, ","))
	}
	return flags
}

// importFlags say how clusters are imported.
func (p planned) importFlags() (flags []string) {
	if !p.registration.Enabled(featuregates.ClusterImporter) {
		return nil
	}
	if renderers, _ := p.renderers(); len(renderers) > 0 {
		flags = append(flags, "--cluster-import-renderers="+strings.Join(renderers, ","))
	}
	if p.agentImage != "" {
		flags = append(flags, "--cluster-import-agent-image="+p.agentImage)
	}
	return flags
}

// renderers are those of the spec that this version has, and the others.
func (p planned) renderers() (known, unknown []string) {
	configuration := registrationOf(p.ClusterManager).ImporterConfiguration
	if configuration == nil {
		return nil, nil
	}
	for _, name := range configuration.Renderers {
		if slices.Contains(fleet.ImportRenderers(), name) {
			known = append(known, name)
		} else {
			unknown = append(unknown, name)
		}
	}
	return known, unknown
}

// drivers are the ways to register that this version has, out of those of the spec; by certificate request if there is none of them.
func (p planned) drivers() (drivers []string) {
	for _, driver := range supportedDrivers {
		if hasDriver(p.ClusterManager, driver) {
			drivers = append(drivers, string(driver))
		}
	}
	if len(drivers) == 0 {
		return []string{string(operatorv1.RegistrationAuthTypeCSR)}
	}
	return drivers
}

// supportedDrivers are those that this version has.
var supportedDrivers = []operatorv1.RegistrationAuthType{
	operatorv1.RegistrationAuthTypeCSR, operatorv1.RegistrationAuthTypeGRPC, operatorv1.RegistrationAuthTypeAWSIRSA,
}

// approvedGRPCUsers are those of the driver grpc whose clusters are approved without an administrator.
func (p planned) approvedGRPCUsers() (users []string) {
	for _, driver := range registrationOf(p.ClusterManager).RegistrationDrivers {
		if driver.AuthType == operatorv1.RegistrationAuthTypeGRPC && driver.GRPC != nil {
			users = append(users, driver.GRPC.AutoApprovedIdentities...)
		}
	}
	return users
}

// approvedUsers are those of the driver csr whose clusters are approved without an administrator.
func (p planned) approvedUsers() []string {
	configuration := registrationOf(p.ClusterManager)
	for _, driver := range configuration.RegistrationDrivers {
		if driver.AuthType == operatorv1.RegistrationAuthTypeCSR && driver.CSR != nil && len(driver.CSR.AutoApprovedIdentities) > 0 {
			return driver.CSR.AutoApprovedIdentities
		}
	}
	return configuration.AutoApproveUsers
}

func joined(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for key, value := range labels {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func (p planned) placementController() workload.Component {
	component := p.controller(placementController, p.Spec.PlacementImagePullSpec, fleet.ServiceAccountPlacementController,
		slices.Concat([]string{"/placement", "controller"}, p.placing.Flags()))
	if p.explains() {
		component.Args = append(component.Args, "--placement-debug-bind-address="+address(debugPort), "--placement-debug-cert-dir="+placementDebugDir)
		component.Volumes = append(component.Volumes,
			workload.SecretVolume(placementDebugName, placementDebugDir, fleet.SecretPlacementDebugServing, false))
		component.Ports = append(component.Ports, corev1.ContainerPort{Name: "debug", ContainerPort: debugPort})
	}
	return component
}

// webhookComponent is a component that the API server asks.
type webhookComponent struct {
	name, program, image, account, secret string
	bind                                  operatorv1.BindConfiguration
	// address at which a hosted webhook is reached; empty if it is a Service of the same cluster.
	address     string
	servicePort int32
	flags       []string
}

func (p planned) webhookComponents() []webhookComponent {
	webhooks := []webhookComponent{
		{name: registrationWebhook, program: "/registration", image: p.Spec.RegistrationImagePullSpec,
			account: fleet.ServiceAccountRegistrationWebhook, secret: fleet.SecretRegistrationServing, flags: p.registration.Flags()},
		{name: workWebhook, program: "/work", image: p.Spec.WorkImagePullSpec,
			account: fleet.ServiceAccountWorkWebhook, secret: fleet.SecretWorkServing, flags: p.work.Flags()},
		{name: addOnWebhook, program: "/addon", image: p.Spec.AddOnManagerImagePullSpec,
			account: fleet.ServiceAccountAddOnWebhook, secret: fleet.SecretAddOnServing},
	}
	for i := range webhooks {
		webhooks[i].bind, webhooks[i].address, webhooks[i].servicePort = p.bindingOf(webhooks[i].name)
	}
	return webhooks
}

// bindingOf is where a webhook listens, and where the API server reaches it.
func (p planned) bindingOf(name string) (bind operatorv1.BindConfiguration, address string, port int32) {
	port = webhookPort
	if option := p.Spec.DeployOption.Hosted; p.hosted && option != nil {
		configuration := option.RegistrationWebhookConfiguration
		if name == workWebhook {
			configuration = option.WorkWebhookConfiguration
		}
		// The configuration has no address for the add-on webhook: see reached.
		return configuration.BindConfiguration, configuration.Address, cmp.Or(configuration.Port, 443)
	}
	if option := p.Spec.DeployOption.Default; !p.hosted && option != nil {
		switch name {
		case registrationWebhook:
			bind = option.RegistrationWebhookConfiguration.BindConfiguration
		case workWebhook:
			bind = option.WorkWebhookConfiguration.BindConfiguration
		case addOnWebhook:
			bind = option.AddonWebhookConfiguration.BindConfiguration
		}
	}
	return bind, "", port
}

func (w webhookComponent) port() int32    { return cmp.Or(w.bind.Port, webhookPort) }
func (w webhookComponent) health() int32  { return ptr.Deref(w.bind.HealthProbePort, 8000) }
func (w webhookComponent) metrics() int32 { return ptr.Deref(w.bind.MetricsPort, 8080) }

func (w webhookComponent) component(p planned) workload.Component {
	component := workload.Component{
		Name: p.name(w.name), App: p.name(w.name), Image: p.imageOf(w.image), ServiceAccount: w.account, HostNetwork: w.bind.HostNetwork,
		Args: p.completed(slices.Concat([]string{w.program, "webhook-server",
			"--port=" + strconv.Itoa(int(w.port())),
			"--metrics-bind-address=" + address(w.metrics()),
			"--health-probe-bind-address=" + address(w.health())}, w.flags)),
		Ports:   []corev1.ContainerPort{{Name: "webhook-server", ContainerPort: w.port()}},
		Volumes: []workload.Volume{workload.SecretVolume(webhookSecretName, webhookCertDir, w.secret, false)},
	}
	if service := servicePrefix + w.name; service != p.name(w.name) { // which it may have been in an earlier version
		component.PodAnnotations = map[string]string{annotationService: service}
	}
	if w.metrics() > 0 {
		component.Ports = append(component.Ports, corev1.ContainerPort{Name: "metrics", ContainerPort: w.metrics()})
	}
	if w.health() > 0 {
		get := func(path string) *corev1.HTTPGetAction {
			return &corev1.HTTPGetAction{Path: path, Scheme: corev1.URISchemeHTTP, Port: intstr.FromInt32(w.health())}
		}
		component.Liveness, component.Readiness = get("/healthz"), get("/readyz")
	} else {
		component.Unprobed = true
	}
	p.leadToHub(&component, w.account, hubKubeconfigDir)
	return component
}

// address to serve at a port of all addresses; 0 or less serves nothing.
func address(port int32) string {
	if port <= 0 {
		return "0"
	}
	return ":" + strconv.Itoa(int(port))
}
