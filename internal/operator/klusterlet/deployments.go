package klusterlet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// Where the agents find their files.
const (
	bootstrapDir     = "/spoke/bootstrap"
	hubKubeconfigDir = "/spoke/hub-kubeconfig"
	spokeConfigDir   = "/spoke/config"
	externalCADir    = "/spoke/external-server-cas"
)

// Values of the label app on pods, which the selectors of Deployments are made of.
const (
	appRegistration = "klusterlet-registration-agent"
	appWork         = "klusterlet-manifestwork-agent"
	appSingle       = "klusterlet-agent"
)

// Requests that agents of Open Cluster Management may send each second, and at once, unless the Klusterlet says otherwise.
const (
	defaultQPS   = 50
	defaultBurst = 100
)

// agentApps are those of all agents.
var agentApps = []string{appRegistration, appWork, appSingle}

// Names of the Deployments.
func (l layout) registrationDeployment() string { return l.klusterlet.Name + "-registration-agent" }
func (l layout) workDeployment() string         { return l.klusterlet.Name + "-work-agent" }
func (l layout) singleDeployment() string       { return l.klusterlet.Name + "-agent" }

// deploymentNames are those of the agent for registration, and of the one for works, which may be the same.
func (l layout) deploymentNames() []string {
	if l.single {
		return []string{l.singleDeployment()}
	}
	return []string{l.registrationDeployment(), l.workDeployment()}
}

// deployments run the agents.
func (l layout) deployments(in inputs) (objects []client.Object) {
	settings := l.workloadSettings(in)
	components := []workload.Component{l.registrationAgent(in), l.workAgent(in)}
	if l.single {
		components = []workload.Component{l.singleAgent(in)}
	}
	for _, component := range components {
		objects = append(objects, component.Deployment(settings))
		if budget := component.DisruptionBudget(settings); budget != nil {
			objects = append(objects, budget)
		}
	}
	return objects
}

func (l layout) workloadSettings(in inputs) workload.Settings {
	spec := l.klusterlet.Spec
	settings := workload.Settings{
		Namespace: l.agents,
		Replicas:  in.replicas,
		Placement: spec.NodePlacement,
		Resources: spec.ResourceRequirement,
		Priority:  spec.PriorityClassName,
		// Users may store it where the agents run; the kubelet ignores one that does not exist.
		PullSecret: fleet.SecretImagePullCredentials,
		PodLabels:  map[string]string{fleet.LabelCreatedByKlusterlet: l.klusterlet.Name},
	}
	if in.syncLabels {
		maps.Copy(settings.PodLabels, frame.LabelsToCopy(l.klusterlet.Labels))
	}
	if alias := spec.HubAPIServerHostAlias; alias != nil {
		settings.HostAliases = []corev1.HostAlias{{IP: alias.IP, Hostnames: []string{alias.Hostname}}}
	}
	return settings
}

func (l layout) registrationAgent(in inputs) workload.Component {
	registration := registrationOf(l.klusterlet)
	c := l.component(l.registrationDeployment(), appRegistration, l.klusterlet.Spec.RegistrationImagePullSpec, in)
	c.ServiceAccount = l.registrationAccount
	c.Args = slices.Concat([]string{"/registration", "agent"}, l.commonFlags(l.klusterlet.Spec.ClusterName, in), l.registrationFlags(),
		l.registrationGates.Flags(), limits("", registration.KubeAPIQPS, registration.KubeAPIBurst))
	c.Volumes = slices.Concat(l.bootstrapVolumes(), l.externalCAVolumes(),
		[]workload.Volume{workload.MemoryVolume("hub-kubeconfig", hubKubeconfigDir)},
		l.managedVolumes(fleet.SecretExternalManagedKubeconfigRegistration))
	l.mountAWSCLI(&c, in)
	return c
}

func (l layout) workAgent(in inputs) workload.Component {
	work := workOf(l.klusterlet)
	name := cmp.Or(l.klusterlet.Spec.ClusterName, in.clusterName)
	c := l.component(l.workDeployment(), appWork, l.klusterlet.Spec.WorkImagePullSpec, in)
	c.ServiceAccount = l.workAccount
	c.Args = slices.Concat([]string{"/work", "agent"}, l.sourceFlags(name), []string{"--terminate-on-files=" + l.hubConfig()},
		l.commonFlags(name, in), l.workFlags(in), l.workGates.Flags(), limits("", work.KubeAPIQPS, work.KubeAPIBurst))
	// The registration agent keeps it, and creates it after it has joined.
	hub := workload.SecretVolume("hub-kubeconfig-secret", hubKubeconfigDir, fleet.SecretHubKubeconfig, true)
	c.Volumes = slices.Concat(l.bootstrapVolumes(), []workload.Volume{hub}, l.managedVolumes(fleet.SecretExternalManagedKubeconfigWork))
	if l.multipleHubs() { // work agents of Open Cluster Management, which may be in the image, do not know the flags
		c.Env = append(c.Env, corev1.EnvVar{Name: fleet.EnvBootstrapConfigs, Value: strings.Join(l.bootstrapFiles(), ",")})
	}
	l.mountAWSCLI(&c, in)
	if in.suspendWork {
		c.Replicas = ptr.To(int32(0))
	}
	return c
}

func (l layout) singleAgent(in inputs) workload.Component {
	registration, work := registrationOf(l.klusterlet), workOf(l.klusterlet)
	c := l.component(l.singleDeployment(), appSingle, l.klusterlet.Spec.ImagePullSpec, in)
	c.ServiceAccount = l.workAccount
	c.Args = slices.Concat([]string{"/registration-operator", "agent"},
		l.sourceFlags(l.klusterlet.Spec.ClusterName), l.commonFlags(l.klusterlet.Spec.ClusterName, in),
		l.registrationFlags(), l.workFlags(in), l.registrationGates.Flags(), l.workGates.Flags(),
		limits("", max(cmp.Or(registration.KubeAPIQPS, defaultQPS), cmp.Or(work.KubeAPIQPS, defaultQPS)),
			max(cmp.Or(registration.KubeAPIBurst, defaultBurst), cmp.Or(work.KubeAPIBurst, defaultBurst))))
	c.Volumes = slices.Concat(l.bootstrapVolumes(), l.externalCAVolumes(),
		[]workload.Volume{workload.MemoryVolume("hub-kubeconfig", hubKubeconfigDir)},
		l.managedVolumes(fleet.SecretExternalManagedKubeconfigAgent))
	l.mountAWSCLI(&c, in)
	return c
}

// hubConfig is the file by which the agents reach the hub after they have registered.
func (l layout) hubConfig() string {
	if l.grpc() {
		return hubKubeconfigDir + "/" + fleet.KeyConfig
	}
	return hubKubeconfigDir + "/" + fleet.KeyKubeconfig
}

// sourceFlags say where the works come from. An agent in one process takes them from where it has registered, unless a flag says otherwise;
// a work agent of its own is another client of the gRPC server than the registration agent, whose id is the name of the cluster.
func (l layout) sourceFlags(clusterName string) (flags []string) {
	switch {
	case l.grpc():
		flags = append(flags, "--workload-source-driver=grpc")
		if clusterName != "" && !l.single {
			flags = append(flags, "--cloudevents-client-id="+clusterName+"-work-agent")
		}
	case !l.single:
		flags = append(flags, "--workload-source-driver=kube")
	}
	return append(flags, "--workload-source-config="+l.hubConfig())
}

func (l layout) component(name, app, image string, in inputs) workload.Component {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	return workload.Component{
		Name: name, App: app, Image: cmp.Or(image, in.defaultImage),
		Env:   []corev1.EnvVar{field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")},
		Ports: []corev1.ContainerPort{{Name: "https", ContainerPort: workload.HealthPort, Protocol: corev1.ProtocolTCP}},
	}
}

// commonFlags are those of every agent.
func (l layout) commonFlags(clusterName string, in inputs) []string {
	flags := []string{"--spoke-cluster-name=" + clusterName, "--agent-id=" + string(l.klusterlet.UID)}
	if l.hosted {
		file := spokeConfigDir + "/" + fleet.KeyKubeconfig
		flags = append(flags, "--spoke-kubeconfig="+file, "--terminate-on-files="+file)
	}
	if in.replicas == 1 {
		flags = append(flags, "--disable-leader-election")
	}
	return append(flags, frame.TLSFlags(in.tlsProfile)...)
}

// bootstrapFiles are the files of the credentials to register with, of several hubs.
func (l layout) bootstrapFiles() (files []string) {
	key := fleet.KeyKubeconfig
	if l.grpc() {
		key = fleet.KeyConfig
	}
	for _, secret := range l.bootstrapSecrets() {
		files = append(files, bootstrapDirOf(secret)+"/"+key)
	}
	return files
}

func (l layout) registrationFlags() (flags []string) {
	registration := registrationOf(l.klusterlet)
	if l.multipleHubs() {
		flag := "--bootstrap-kubeconfigs="
		if l.grpc() {
			flag = "--grpc-bootstrap-configs="
		}
		for _, file := range l.bootstrapFiles() {
			flags = append(flags, flag+file)
		}
		if timeout := registration.BootstrapKubeConfigs.LocalSecrets.HubConnectionTimeoutSeconds; timeout > 0 {
			flags = append(flags, fmt.Sprintf("--hub-connection-timeout-seconds=%d", timeout))
		}
	} else {
		flags = append(flags, "--bootstrap-kubeconfig="+bootstrapDir+"/"+fleet.KeyKubeconfig)
	}
	if l.grpc() {
		flags = append(flags, "--registration-auth="+string(operatorv1.RegistrationAuthTypeGRPC), "--grpc-config="+l.hubConfig())
	}
	if l.grpc() && !l.multipleHubs() {
		flags = append(flags, "--grpc-bootstrap-config="+bootstrapDir+"/"+fleet.KeyConfig)
	}
	for _, server := range l.externalServers() {
		flags = append(flags, "--spoke-external-server-urls="+server.URL)
	}
	for _, bundle := range l.externalCAs() {
		flags = append(flags, "--spoke-external-server-ca-files="+bundle.url+"="+externalCADir+"/"+bundle.key)
	}
	if seconds := registration.ClientCertExpirationSeconds; seconds > 0 {
		flags = append(flags, fmt.Sprintf("--client-cert-expiration-seconds=%d", seconds))
	}
	flags = append(flags, l.awsFlags()...)
	flags = append(flags, pairs("--cluster-annotations", ownAnnotations(registration.ClusterAnnotations))...)
	flags = append(flags, pairs("--cluster-labels", registration.ClusterLabels)...)
	flags = append(flags, addOnFlags(registration.AddOnKubeClientRegistrationDriver)...)
	if claims := registration.ClusterClaimConfiguration; claims != nil {
		flags = append(flags, fmt.Sprintf("--max-custom-cluster-claims=%d", claims.MaxCustomClusterClaims))
		flags = append(flags, workload.ListFlag("--reserved-cluster-claim-suffixes", claims.ReservedClusterClaimSuffixes...)...)
	}
	return flags
}

// addOnFlags say how the agents of add-ons prove to the hub who they are.
func addOnFlags(driver *operatorv1.AddOnRegistrationDriver) (flags []string) {
	if driver == nil || driver.AuthType == "" {
		return nil
	}
	flags = append(flags, "--addon-kubeclient-registration-auth="+driver.AuthType)
	if driver.Token != nil && driver.Token.ExpirationSeconds > 0 {
		flags = append(flags, fmt.Sprintf("--addon-token-expiration-seconds=%d", driver.Token.ExpirationSeconds))
	}
	return flags
}

func (l layout) workFlags(in inputs) (flags []string) {
	work := workOf(l.klusterlet)
	flags = limits("hub-", work.HubKubeAPIQPS, work.HubKubeAPIBurst)
	if period := work.AppliedManifestWorkEvictionGracePeriod; period != "" {
		flags = append(flags, "--appliedmanifestwork-eviction-grace-period="+period)
	}
	switch {
	case work.StatusSyncInterval != "":
		flags = append(flags, "--status-sync-interval="+work.StatusSyncInterval)
	case in.replicas == 1: // less for small clusters, where agents of Open Cluster Management run
		flags = append(flags, "--status-sync-interval=60s")
	}
	return flags
}

// limits are how many requests an agent may send.
func limits(prefix string, qps, burst int32) []string {
	return []string{fmt.Sprintf("--%skube-api-qps=%d", prefix, cmp.Or(qps, defaultQPS)),
		fmt.Sprintf("--%skube-api-burst=%d", prefix, cmp.Or(burst, defaultBurst))}
}

// ownAnnotations are those that an agent may set.
func ownAnnotations(annotations map[string]string) map[string]string {
	own := maps.Clone(annotations)
	maps.DeleteFunc(own, func(key, _ string) bool { return !strings.HasPrefix(key, fleet.AnnotationAgentPrefix) })
	return own
}

// pairs are a flag with keys and values, none if there are none.
func pairs(flag string, values map[string]string) []string {
	if len(values) == 0 {
		return nil
	}
	return []string{flag + "=" + labels.Set(values).String()}
}

// bootstrapDirOf is where the Secret of one of several hubs is mounted.
func bootstrapDirOf(secret string) string { return "/spoke/" + secret }

// otherDirs are where agents have what is no credential to register with.
func (l layout) otherDirs() sets.Set[string] {
	dirs := sets.New(hubKubeconfigDir)
	if l.hosted {
		dirs.Insert(spokeConfigDir)
	}
	if len(l.externalCAs()) > 0 {
		dirs.Insert(externalCADir)
	}
	return dirs
}

// bootstrapVolumes show the credentials to register with. Pods start without them, and say what is missing.
func (l layout) bootstrapVolumes() (volumes []workload.Volume) {
	if !l.multipleHubs() {
		return []workload.Volume{workload.SecretVolume("bootstrap-secret", bootstrapDir, fleet.SecretBootstrapHubKubeconfig, true)}
	}
	for i, secret := range l.bootstrapSecrets() {
		volumes = append(volumes, workload.SecretVolume(fmt.Sprintf("bootstrap-secret-%d", i), bootstrapDirOf(secret), secret, true))
	}
	return volumes
}

// externalCAVolumes show the CAs of addresses of the managed cluster.
func (l layout) externalCAVolumes() []workload.Volume {
	if len(l.externalCAs()) == 0 {
		return nil
	}
	return []workload.Volume{workload.ConfigMapVolume("external-server-cas", externalCADir, l.externalCAConfigMap())}
}

// managedVolumes show hosted agents the kubeconfig of the managed cluster.
func (l layout) managedVolumes(secret string) []workload.Volume {
	if !l.hosted {
		return nil
	}
	return []workload.Volume{workload.SecretVolume("spoke-kubeconfig-secret", spokeConfigDir, secret, false)}
}

// externalCA is the CA bundle of an address of the managed cluster's API server, and the key under which it is in the ConfigMap.
type externalCA struct {
	url, key string
	pem      []byte
}

// externalServers are the addresses of the managed cluster's API server. Clients that know none write an entry with an empty URL.
func (l layout) externalServers() (servers []operatorv1.ServerURL) {
	for _, server := range l.klusterlet.Spec.ExternalServerURLs {
		if server.URL != "" {
			servers = append(servers, server)
		}
	}
	return servers
}

func (l layout) externalCAs() (bundles []externalCA) {
	for i, server := range l.externalServers() {
		if len(server.CABundle) > 0 {
			bundles = append(bundles, externalCA{server.URL, fmt.Sprintf("%d.crt", i), server.CABundle})
		}
	}
	return bundles
}

func (l layout) externalCAConfigMap() string { return l.klusterlet.Name + "-external-server-cas" }
