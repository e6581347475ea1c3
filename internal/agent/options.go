package agent

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/hubaccess"
	"github.com/capstan-io/capstan/internal/cloudevents/mqtt"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest/feedback"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/secureserving"
)

// Options configure an agent. The flags are named as in the original's agents.
type Options struct {
	// BootstrapKubeconfig is the file with the credential to register with. A work agent alone reads other clusters of the hub with it.
	BootstrapKubeconfig string
	// BootstrapKubeconfigs are such files of several hubs, in the order of preference. They replace BootstrapKubeconfig.
	BootstrapKubeconfigs []string
	// HubConnectionTimeoutSeconds is how long a hub may be silent before the agent turns to another of several.
	HubConnectionTimeoutSeconds int
	// HubKubeconfigDir is the folder for the hub kubeconfig and its certificate.
	HubKubeconfigDir string
	// HubKubeconfigSecret names the Secret, in Namespace, that holds the same; empty means files only.
	HubKubeconfigSecret string
	// Namespace is the agent's own in the cluster it runs in.
	Namespace string
	// Kubeconfig is of the cluster the agent runs in, where the Secret and the Lease are; empty means in-cluster, or
	// SpokeKubeconfig.
	Kubeconfig string
	// SpokeKubeconfig is of the managed cluster; empty means the cluster the agent runs in.
	SpokeKubeconfig string
	// ManagedCluster takes precedence over SpokeKubeconfig, for a program that runs the managed cluster itself.
	ManagedCluster *rest.Config
	// ClusterName and AgentID are the agent's names on the hub; empty means what an earlier run used, or random ones.
	ClusterName string
	AgentID     string
	// SpokeExternalServerURLs are reported as addresses of the managed cluster's API server.
	SpokeExternalServerURLs []string
	// SpokeExternalServerCAFiles are the files with the CAs of some of these addresses, by their URLs. Others have that of SpokeKubeconfig.
	SpokeExternalServerCAFiles map[string]string
	// ClusterAnnotations are put on the ManagedCluster when it is made, if they have the prefix of agents.
	ClusterAnnotations map[string]string
	// ClusterLabels are put on the ManagedCluster when it is made, if the hub lets the agent.
	ClusterLabels map[string]string
	// ClusterHealthCheckPeriod is the time between health probes of the managed cluster's API server.
	ClusterHealthCheckPeriod time.Duration
	// MaxCustomClusterClaims is how many claims are reported in addition to the reserved ones.
	MaxCustomClusterClaims int
	// ReservedClusterClaimSuffixes end the names of further reserved claims.
	ReservedClusterClaimSuffixes []string
	// ClientCertExpirationSeconds requests a lifetime of client certificates; 0 leaves it to the hub.
	ClientCertExpirationSeconds int32
	// HubClusterARN and ManagedClusterARN are the two clusters in AWS, for the registration awsirsa.
	HubClusterARN, ManagedClusterARN string
	// ManagedClusterRoleSuffix ends the names of the IAM roles of the managed cluster; empty means what follows from the two ARNs.
	ManagedClusterRoleSuffix string
	// AddOnKubeClientRegistrationAuth is how add-ons get access to the API server of the hub: csr or token.
	AddOnKubeClientRegistrationAuth string
	// AddOnTokenExpirationSeconds requests a lifetime of tokens of add-ons; 0 leaves it to the hub.
	AddOnTokenExpirationSeconds int64
	// AddOnLeaseGracePeriod is how long the lease of an add-on may go without renewal; 0 means three times its own
	// leaseDurationSeconds.
	AddOnLeaseGracePeriod time.Duration
	// WorkloadAgentWorkers is how many works are applied at once.
	WorkloadAgentWorkers int
	// AppliedManifestWorkEvictionGracePeriod is how long what a work applied outlives the work's absence from the hub; 100
	// years and more mean without end.
	AppliedManifestWorkEvictionGracePeriod time.Duration
	// MaxJSONRawLength is how many bytes of JSON a reported value may have.
	MaxJSONRawLength int
	// MetricsBindAddress and HealthProbeBindAddress serve /metrics and /healthz, /readyz; "0" serves none.
	MetricsBindAddress     string
	HealthProbeBindAddress string
	// ListenAddress serves /healthz, /livez, /readyz and, to those whom the cluster lets, /metrics over HTTPS; "0" serves none.
	ListenAddress string
	// TLS is what is served there.
	TLS secureserving.TLSFlags
	// LeaderElect has several replicas elect the one that acts. Those that share HubKubeconfigSecret do so without it.
	LeaderElect bool
	// DisableLeaderElection lets every replica act.
	DisableLeaderElection bool
	// PprofBindAddress serves profiles at /debug/pprof; "0" serves none.
	PprofBindAddress string
	// FeatureGates switch features on and off.
	FeatureGates *featuregates.Set
	// TerminateOnFiles are files whose changes end the agent, so that its supervisor restarts it.
	TerminateOnFiles []string
	// RegistrationAuth is how the agent registers: csr, by the API server of the hub; grpc, by its gRPC server; or awsirsa, by the API server
	// and AWS IAM.
	RegistrationAuth string
	// GRPCBootstrapConfig is the file that takes the place of BootstrapKubeconfig where the agent registers by gRPC.
	GRPCBootstrapConfig string
	// GRPCBootstrapConfigs are such files of several hubs, in the order of preference. They replace GRPCBootstrapConfig.
	GRPCBootstrapConfigs []string
	// GRPCConfig is the file that takes the place of the hub kubeconfig then, and is another name for HubKubeconfigDir.
	GRPCConfig string
	// WorkloadSourceDriver is how works come: kube, by the API server of the hub, grpc, or mqtt; empty means as the agent registers.
	WorkloadSourceDriver string
	// WorkloadSourceConfig is the hub kubeconfig, or what takes its place, which is another name for HubKubeconfigDir. With the driver mqtt,
	// it is the configuration of the broker.
	WorkloadSourceConfig string
	// CloudEventsClientID is who the agent is to the gRPC server; empty means the name of the cluster.
	CloudEventsClientID string
	// CloudEventsClientCodecs are the forms in which works may come by gRPC. The one that is used has to be among them.
	CloudEventsClientCodecs []string

	bootstrapConfigs []string  // what the environment names instead of BootstrapKubeconfigs and GRPCBootstrapConfigs
	aws              *eks.Pair // for authAWS
	accepted         ignoredflags.Flags
}

// defaultHubKubeconfigDir is where the hub kubeconfig is in a pod.
const defaultHubKubeconfigDir = "/spoke/hub-kubeconfig"

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		bootstrapConfigs:         strings.FieldsFunc(os.Getenv(fleet.EnvBootstrapConfigs), func(r rune) bool { return r == ',' }),
		BootstrapKubeconfig:      "/spoke/bootstrap/kubeconfig",
		HubKubeconfigDir:         defaultHubKubeconfigDir,
		RegistrationAuth:         authCSR,
		GRPCBootstrapConfig:      "/spoke/bootstrap/" + fleet.KeyConfig,
		CloudEventsClientCodecs:  []string{codec},
		Namespace:                program.Namespace(fleet.NamespaceAgent),
		ClusterHealthCheckPeriod: time.Minute,
		FeatureGates:             featuregates.Agent(),

		HubConnectionTimeoutSeconds: 600,
		MaxCustomClusterClaims:      20,

		AddOnKubeClientRegistrationAuth: string(addonv1beta1.KubeClientDriverCSR),

		WorkloadAgentWorkers: 10,

		AppliedManifestWorkEvictionGracePeriod: time.Hour,

		MaxJSONRawLength:       feedback.MaxJSONRaw,
		MetricsBindAddress:     "0",
		HealthProbeBindAddress: "0",
		ListenAddress:          secureserving.None,
		PprofBindAddress:       "0",
	}
}

// AddCommonFlags adds the flags of every kind of agent.
func (o *Options) AddCommonFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.HubKubeconfigDir, "hub-kubeconfig-dir", o.HubKubeconfigDir, "folder for the hub kubeconfig and its client certificate")
	fs.StringVar(&o.HubKubeconfigSecret, "hub-kubeconfig-secret", o.HubKubeconfigSecret,
		"name of a Secret in --namespace that keeps the hub kubeconfig beyond the life of the folder")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of the agent")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"kubeconfig of the cluster that holds the Secret and the Lease (default in-cluster, or --spoke-kubeconfig)")
	fs.StringVar(&o.SpokeKubeconfig, "spoke-kubeconfig", o.SpokeKubeconfig, "kubeconfig of the managed cluster (default in-cluster)")
	fs.StringVar(&o.ClusterName, "cluster-name", o.ClusterName,
		"name of the managed cluster on the hub (default the one of an earlier run, or a random one)")
	fs.StringVar(&o.ClusterName, "spoke-cluster-name", o.ClusterName, "the same as --cluster-name")
	fs.StringVar(&o.AgentID, "agent-id", o.AgentID, "name of the agent on the hub (default the one of an earlier run, or a random one)")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "address to serve /metrics on; 0 serves none")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress,
		"address to serve /healthz and /readyz on; 0 serves none")
	secureserving.AddFlag(fs, &o.ListenAddress)
	o.TLS.Add(fs)
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"act only while holding a Lease in --namespace, so that several replicas may run; --hub-kubeconfig-secret implies it")
	fs.BoolVar(&o.DisableLeaderElection, "disable-leader-election", o.DisableLeaderElection,
		"act without a Lease, even if other replicas run")
	fs.StringVar(&o.PprofBindAddress, "pprof-bind-address", o.PprofBindAddress, "address to serve profiles on, at /debug/pprof; 0 serves none")
	fs.StringSliceVar(&o.TerminateOnFiles, "terminate-on-files", o.TerminateOnFiles,
		"files whose changes end the agent, so that it is restarted")
	o.addBootstrapFlags(fs)
	o.FeatureGates.AddFlag(fs)
	o.accepted.AddLimits(fs, "kube-api-qps", "kube-api-burst")
}

// addBootstrapFlags adds the flags of the credentials to register with. A work agent reads other clusters of the hub with them.
func (o *Options) addBootstrapFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BootstrapKubeconfig, "bootstrap-kubeconfig", o.BootstrapKubeconfig,
		"kubeconfig with the credential to register with, and to ask the hub whether another cluster has left it")
	fs.StringSliceVar(&o.BootstrapKubeconfigs, "bootstrap-kubeconfigs", o.BootstrapKubeconfigs,
		"kubeconfigs as --bootstrap-kubeconfig, which they replace, one of each hub to register with, in the order of preference; the agent works with one at a time")
	fs.StringVar(&o.GRPCBootstrapConfig, "grpc-bootstrap-config", o.GRPCBootstrapConfig,
		"file with the address of the hub's gRPC server and the credential to register with, which takes the place of --bootstrap-kubeconfig where "+
			"the agent reaches the hub by gRPC")
	fs.StringSliceVar(&o.GRPCBootstrapConfigs, "grpc-bootstrap-configs", o.GRPCBootstrapConfigs,
		"files as --grpc-bootstrap-config, which they replace, one of each hub to register with, in the order of preference; the agent works with one at a time")
}

// AddRegistrationFlags adds the flags of registration.
func (o *Options) AddRegistrationFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.HubConnectionTimeoutSeconds, "hub-connection-timeout-seconds", o.HubConnectionTimeoutSeconds,
		"seconds for which the hub may not answer before the agent turns to another of --bootstrap-kubeconfigs, at least 5")
	fs.StringToStringVar(&o.ClusterAnnotations, "cluster-annotations", o.ClusterAnnotations,
		"annotations of the ManagedCluster that the agent makes; those whose keys do not begin with "+fleet.AnnotationAgentPrefix+" are left out")
	fs.StringToStringVar(&o.ClusterLabels, "cluster-labels", o.ClusterLabels,
		"labels of the ManagedCluster that the agent makes; a hub of this project leaves labels to its administrators, and then they are left out")
	fs.StringSliceVar(&o.SpokeExternalServerURLs, "spoke-external-server-urls", o.SpokeExternalServerURLs,
		"URLs under which the managed cluster's API server can be reached, for the hub's users")
	fs.StringToStringVar(&o.SpokeExternalServerCAFiles, "spoke-external-server-ca-files", o.SpokeExternalServerCAFiles,
		"files with the CA certificates of some of --spoke-external-server-urls, each as URL=FILE (default the CA of --spoke-kubeconfig)")
	fs.DurationVar(&o.ClusterHealthCheckPeriod, "cluster-healthcheck-period", o.ClusterHealthCheckPeriod,
		"time between health probes of the managed cluster's API server")
	fs.IntVar(&o.MaxCustomClusterClaims, "max-custom-cluster-claims", o.MaxCustomClusterClaims,
		"how many cluster claims are reported in addition to the reserved ones")
	fs.StringSliceVar(&o.ReservedClusterClaimSuffixes, "reserved-cluster-claim-suffixes", o.ReservedClusterClaimSuffixes,
		"claims whose names end so are always reported")
	fs.Int32Var(&o.ClientCertExpirationSeconds, "client-cert-expiration-seconds", o.ClientCertExpirationSeconds,
		"lifetime to ask for client certificates, at least 600; 0 leaves it to the hub")
	fs.StringVar(&o.AddOnKubeClientRegistrationAuth, "addon-kubeclient-registration-auth", o.AddOnKubeClientRegistrationAuth,
		"how add-ons get access to the hub: csr for client certificates, token for tokens of service accounts")
	fs.Int64Var(&o.AddOnTokenExpirationSeconds, "addon-token-expiration-seconds", o.AddOnTokenExpirationSeconds,
		"lifetime to ask for tokens of add-ons, at least 600; 0 leaves it to the hub")
	fs.DurationVar(&o.AddOnLeaseGracePeriod, "addon-lease-grace-period", o.AddOnLeaseGracePeriod,
		"how long an add-on may not renew its lease before it counts as lost; 0 means three times the leaseDurationSeconds of the lease")
	o.accepted.Add(fs, "bootstrap-kubeconfig-secret", ignoredflags.Text, "changes of --bootstrap-kubeconfig are seen in the file")
	fs.StringVar(&o.RegistrationAuth, "registration-auth", o.RegistrationAuth, "how to register: "+authCSR+" by the API of the hub, "+
		authGRPC+" by its gRPC server, "+authAWS+" by the API and AWS IAM, between EKS clusters")
	fs.StringVar(&o.GRPCConfig, "grpc-config", o.GRPCConfig, "the file "+fleet.KeyConfig+" in --hub-kubeconfig-dir, which it names in another way")
	fs.StringVar(&o.HubClusterARN, "hub-cluster-arn", o.HubClusterARN, "ARN of the hub, for --registration-auth="+authAWS)
	fs.StringVar(&o.ManagedClusterARN, "managed-cluster-arn", o.ManagedClusterARN, "ARN of the managed cluster, for --registration-auth="+authAWS)
	fs.StringVar(&o.ManagedClusterRoleSuffix, "managed-cluster-role-suffix", o.ManagedClusterRoleSuffix,
		"end of the names of the IAM roles of the managed cluster (default what follows from the two ARNs, and no other is right)")
}

// AddWorkFlags adds the flags of the work agent.
func (o *Options) AddWorkFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.WorkloadAgentWorkers, "workload-agent-workers", o.WorkloadAgentWorkers, "how many ManifestWorks are applied at once")
	fs.DurationVar(&o.AppliedManifestWorkEvictionGracePeriod, "appliedmanifestwork-eviction-grace-period",
		o.AppliedManifestWorkEvictionGracePeriod,
		"how long to keep what was applied for a ManifestWork that is missing on the hub, or for a hub that the agent has left; 876000h and more keep it without end")
	fs.IntVar(&o.MaxJSONRawLength, "max-json-raw-length", o.MaxJSONRawLength,
		fmt.Sprintf("bytes of JSON that a reported value of type JsonRaw may have, %d at most", feedback.MaxJSONRaw))
	fs.StringVar(&o.WorkloadSourceDriver, "workload-source-driver", o.WorkloadSourceDriver,
		"how works come: kube, by the API server of the hub, grpc, by its gRPC server, or mqtt, by a broker of MQTT (default as the agent registers, "+
			"if it does, or kube)")
	fs.StringVar(&o.WorkloadSourceConfig, "workload-source-config", o.WorkloadSourceConfig, "the file "+fleet.KeyKubeconfig+
		" in --hub-kubeconfig-dir, or "+fleet.KeyConfig+" for grpc, which it names in another way; for mqtt, the configuration of the broker")
	fs.StringVar(&o.WorkloadSourceConfig, "hub-kubeconfig", o.WorkloadSourceConfig, "the same as --workload-source-config")
	o.accepted.Add(fs, "status-sync-interval", ignoredflags.Duration, "status is reported when it changes")
	o.accepted.Add(fs, "max-feedback-watch", ignoredflags.Number, "a kind has one watch, however many works have objects of it")
	o.accepted.AddLimits(fs, "hub-kube-api-qps", "hub-kube-api-burst")
	fs.StringVar(&o.CloudEventsClientID, "cloudevents-client-id", o.CloudEventsClientID,
		"who the agent is to the gRPC server of the hub, in what it sends (default the name of the cluster)")
	fs.StringSliceVar(&o.CloudEventsClientCodecs, "cloudevents-client-codecs", o.CloudEventsClientCodecs,
		"forms in which works may come by gRPC; "+codec+" has to be among them")
}

// How an agent registers, and how works come.
const (
	authCSR  = "csr"
	authGRPC = "grpc"
	authAWS  = "awsirsa"

	driverKube = "kube"
	driverGRPC = "grpc"
	driverMQTT = "mqtt"

	// codec is the form in which works come by gRPC.
	codec = "manifestbundle"
)

var registrationAuths = []string{authCSR, authGRPC, authAWS}

// drivers are how add-ons may get access to the hub.
var drivers = []addonv1beta1.KubeClientDriver{addonv1beta1.KubeClientDriverCSR, addonv1beta1.KubeClientDriverToken}

// minHubConnectionTimeout is the shortest silence that may mean a hub is gone, in seconds: one that restarts takes a while.
const minHubConnectionTimeout = 5

// bootstrapKubeconfigs are the files to register with, in the order of preference.
func (o *Options) bootstrapKubeconfigs() []string {
	several, one := o.BootstrapKubeconfigs, o.BootstrapKubeconfig
	if o.usesGRPC() {
		several, one = o.GRPCBootstrapConfigs, o.GRPCBootstrapConfig
	}
	switch {
	case len(several) > 0:
		return several
	case len(o.bootstrapConfigs) > 0:
		return o.bootstrapConfigs
	}
	return []string{one}
}

// usesGRPC reports whether the agent reaches the hub by gRPC.
func (o *Options) usesGRPC() bool {
	return o.RegistrationAuth == authGRPC || o.WorkloadSourceDriver == driverGRPC
}

// access is how the agent reaches the hub. Registration and work in one process use the same transport.
func (o *Options) access(parts Parts) (*hubaccess.Access, error) {
	if parts.Registration && parts.Work && o.WorkloadSourceDriver == driverMQTT {
		return nil, fmt.Errorf("--workload-source-driver is %s, by which works come and nothing else; run registration and work in processes of their own",
			driverMQTT)
	}
	if parts.Registration && parts.Work && o.WorkloadSourceDriver != "" && (o.RegistrationAuth == authGRPC) != (o.WorkloadSourceDriver == driverGRPC) {
		return nil, fmt.Errorf("--registration-auth is %s and --workload-source-driver is %s; one process reaches the hub in one way: set both to %s, "+
			"or run registration and work in processes of their own", o.RegistrationAuth, o.WorkloadSourceDriver, authGRPC)
	}
	registers := o.registrationAccess()
	if o.WorkloadSourceDriver != driverMQTT || !parts.Work {
		return registers, nil
	}
	config, err := mqtt.Load(o.WorkloadSourceConfig)
	if err != nil {
		return nil, fmt.Errorf("--workload-source-config: %w", err)
	}
	return hubaccess.MQTT(config, o.CloudEventsClientID, registers), nil
}

// registrationAccess is how the bootstrap credential reaches the hub.
func (o *Options) registrationAccess() *hubaccess.Access {
	if o.usesGRPC() {
		return hubaccess.GRPC(o.CloudEventsClientID)
	}
	return hubaccess.API
}

// hubTimeout is zero where there is one hub, which is waited for as long as it takes.
func (o *Options) hubTimeout() time.Duration {
	if len(o.bootstrapKubeconfigs()) < 2 {
		return 0
	}
	return time.Duration(o.HubConnectionTimeoutSeconds) * time.Second
}

// complete sets options that another option gives in another form.
func (o *Options) complete() error {
	if o.RegistrationAuth == authGRPC {
		if err := o.completeFolder("--grpc-config", o.GRPCConfig, fleet.KeyConfig); err != nil {
			return err
		}
	}
	if o.WorkloadSourceDriver == driverMQTT {
		return nil // the file is that of the broker
	}
	if o.usesGRPC() {
		return o.completeFolder("--workload-source-config", o.WorkloadSourceConfig, fleet.KeyConfig)
	}
	return o.completeFolder("--workload-source-config", o.WorkloadSourceConfig, fleet.KeyKubeconfig)
}

// completeFolder takes the folder for the credential from the path of one of its files.
func (o *Options) completeFolder(flag, path, want string) error {
	if path == "" {
		return nil
	}
	dir, file := filepath.Split(filepath.Clean(path))
	dir = filepath.Clean(dir)
	switch {
	case file != want:
		return fmt.Errorf("%s is %s; it must be a file %s, in the folder with the rest of the credential", flag, path, want)
	case o.HubKubeconfigDir != defaultHubKubeconfigDir && filepath.Clean(o.HubKubeconfigDir) != dir:
		return fmt.Errorf("%s is %s, which is not in --hub-kubeconfig-dir %s; leave one of them out", flag, path, o.HubKubeconfigDir)
	}
	o.HubKubeconfigDir = dir
	return nil
}

// annotations are those of ClusterAnnotations that an agent may set, and the keys of the others.
func (o *Options) annotations() (own map[string]string, others []string) {
	own = map[string]string{}
	for key, value := range o.ClusterAnnotations {
		if strings.HasPrefix(key, fleet.AnnotationAgentPrefix) {
			own[key] = value
		} else {
			others = append(others, key)
		}
	}
	slices.Sort(others)
	return own, others
}

// maxJSONRaw is how many bytes of JSON a reported value may have; 0 reports none.
func (o *Options) maxJSONRaw() int {
	if !o.FeatureGates.Enabled(featuregates.RawFeedbackJsonString) {
		return 0
	}
	return o.MaxJSONRawLength
}

// log logs options that are set and have no effect.
func (o *Options) log(logger logr.Logger) {
	o.FeatureGates.Log(logger)
	o.accepted.Log(logger)
	if o.CloudEventsClientID != "" && !o.usesGRPC() {
		logger.Info("A flag is accepted and changes nothing", "flag", "--cloudevents-client-id", "reason", "the agent reaches the hub by its API server")
	}
	if _, others := o.annotations(); len(others) > 0 {
		logger.Info("Annotations of --cluster-annotations are left out: an agent may set those of its own prefix", "keys", others, "prefix",
			fleet.AnnotationAgentPrefix)
	}
}

// validateAccess refuses transports to the hub that there are not.
func (o *Options) validateAccess() error {
	switch {
	case !slices.Contains(registrationAuths, o.RegistrationAuth):
		return fmt.Errorf("--registration-auth: %q is not in this version; use %s, %s or %s", o.RegistrationAuth, authCSR, authGRPC, authAWS)
	case !slices.Contains([]string{"", driverKube, driverGRPC, driverMQTT}, o.WorkloadSourceDriver):
		return fmt.Errorf("--workload-source-driver: %q is not in this version; use %s, %s or %s", o.WorkloadSourceDriver, driverKube, driverGRPC,
			driverMQTT)
	case o.WorkloadSourceDriver == driverMQTT && o.WorkloadSourceConfig == "":
		return fmt.Errorf("--workload-source-driver=%s takes --workload-source-config, the file with the configuration of the broker", driverMQTT)
	case o.usesGRPC() && !slices.Contains(o.CloudEventsClientCodecs, codec):
		return fmt.Errorf("--cloudevents-client-codecs is %s; %s has to be among them", strings.Join(o.CloudEventsClientCodecs, ","), codec)
	case o.usesGRPC() && len(o.BootstrapKubeconfigs) > 0:
		return fmt.Errorf("--bootstrap-kubeconfigs are for agents that reach the hub by its API server; name the hubs by --grpc-bootstrap-configs")
	case o.RegistrationAuth == authAWS && o.usesGRPC():
		return fmt.Errorf("--workload-source-driver=%s is not for --registration-auth=%s, by which the gRPC server knows nobody; use %s",
			driverGRPC, authAWS, driverKube)
	case !o.usesGRPC() && len(o.GRPCBootstrapConfigs) > 0:
		return fmt.Errorf("--grpc-bootstrap-configs are for agents that reach the hub by its gRPC server; name the hubs by --bootstrap-kubeconfigs")
	}
	return nil
}

// Validate refuses what cannot work in a process with the parts, naming the flag.
func (o *Options) Validate(parts Parts) error {
	if err := o.validateAccess(); err != nil {
		return err
	}
	switch {
	case o.ClusterHealthCheckPeriod <= 0:
		return fmt.Errorf("--cluster-healthcheck-period is %s; it must be more than 0, such as 1m", o.ClusterHealthCheckPeriod)
	case o.MaxCustomClusterClaims < 0:
		return fmt.Errorf("--max-custom-cluster-claims is %d; it must not be negative", o.MaxCustomClusterClaims)
	case o.ClientCertExpirationSeconds != 0 && o.ClientCertExpirationSeconds < fleet.MinCredentialSeconds:
		return fmt.Errorf("--client-cert-expiration-seconds is %d; it must be 0 or at least %d", o.ClientCertExpirationSeconds,
			fleet.MinCredentialSeconds)
	case !slices.Contains(drivers, addonv1beta1.KubeClientDriver(o.AddOnKubeClientRegistrationAuth)):
		return fmt.Errorf("--addon-kubeclient-registration-auth is %q; it must be csr or token", o.AddOnKubeClientRegistrationAuth)
	case o.AddOnTokenExpirationSeconds != 0 && o.AddOnTokenExpirationSeconds < fleet.MinCredentialSeconds:
		return fmt.Errorf("--addon-token-expiration-seconds is %d; it must be 0 or at least %d", o.AddOnTokenExpirationSeconds,
			fleet.MinCredentialSeconds)
	case o.AddOnLeaseGracePeriod < 0:
		return fmt.Errorf("--addon-lease-grace-period is %s; it must not be negative", o.AddOnLeaseGracePeriod)
	case o.WorkloadAgentWorkers < 1:
		return fmt.Errorf("--workload-agent-workers is %d; it must be at least 1", o.WorkloadAgentWorkers)
	case o.MaxJSONRawLength < 1 || o.MaxJSONRawLength > feedback.MaxJSONRaw:
		return fmt.Errorf("--max-json-raw-length is %d; it must be between 1 and %d", o.MaxJSONRawLength, feedback.MaxJSONRaw)
	case o.AppliedManifestWorkEvictionGracePeriod < 0:
		return fmt.Errorf("--appliedmanifestwork-eviction-grace-period is %s; it must not be negative", o.AppliedManifestWorkEvictionGracePeriod)
	}
	if o.HubConnectionTimeoutSeconds < minHubConnectionTimeout {
		return fmt.Errorf("--hub-connection-timeout-seconds is %d; it must be at least %d", o.HubConnectionTimeoutSeconds,
			minHubConnectionTimeout)
	}
	for flag, files := range map[string][]string{"--bootstrap-kubeconfigs": o.BootstrapKubeconfigs, "--grpc-bootstrap-configs": o.GRPCBootstrapConfigs} {
		if slices.Contains(files, "") {
			return fmt.Errorf("%s: one of %d files has no name", flag, len(files))
		}
		if parts.Registration && len(files) > 1 && !o.FeatureGates.Enabled(featuregates.MultipleHubs) {
			return fmt.Errorf("%s names %d hubs, and --feature-gates=%s=false allows one; name one, or leave the feature gate on",
				flag, len(files), featuregates.MultipleHubs)
		}
	}
	if err := o.validateAWS(); err != nil {
		return err
	}
	for _, u := range o.SpokeExternalServerURLs {
		if parsed, err := url.Parse(u); err != nil || parsed.Scheme != "https" || parsed.Host == "" {
			return fmt.Errorf("--spoke-external-server-urls: %q is no https URL, such as https://api.example.com:6443", u)
		}
	}
	for u := range o.SpokeExternalServerCAFiles {
		if !slices.Contains(o.SpokeExternalServerURLs, u) {
			return fmt.Errorf("--spoke-external-server-ca-files has a file for %q, which is none of --spoke-external-server-urls", u)
		}
	}
	return nil
}

// hubUser is as whom the agent of a cluster acts on the hub, if that is not the user of its certificate.
func (o *Options) hubUser(cluster string) string {
	if o.aws == nil {
		return ""
	}
	return fleet.AWSClusterUser(cluster)
}

// validateAWS checks what registration by AWS IAM needs, and keeps it.
func (o *Options) validateAWS() (err error) {
	if o.RegistrationAuth != authAWS {
		for flag, value := range map[string]string{
			"hub-cluster-arn": o.HubClusterARN, "managed-cluster-arn": o.ManagedClusterARN, "managed-cluster-role-suffix": o.ManagedClusterRoleSuffix,
		} {
			if value != "" {
				return fmt.Errorf("--%s is for --registration-auth=%s; set that, or leave it out", flag, authAWS)
			}
		}
		return nil
	}
	hub, err := eks.Parse(o.HubClusterARN)
	if err != nil {
		return fmt.Errorf("--hub-cluster-arn: %w", err)
	}
	managed, err := eks.Parse(o.ManagedClusterARN)
	if err != nil {
		return fmt.Errorf("--managed-cluster-arn: %w", err)
	}
	pair := eks.Pair{Hub: hub, Managed: managed}
	switch {
	case o.ManagedClusterRoleSuffix != "" && o.ManagedClusterRoleSuffix != pair.Suffix():
		return fmt.Errorf("--managed-cluster-role-suffix is %q, and that of the two ARNs is %s; leave it out", o.ManagedClusterRoleSuffix, pair.Suffix())
	case len(o.BootstrapKubeconfigs) > 1:
		return fmt.Errorf("--bootstrap-kubeconfigs names %d hubs, and --hub-cluster-arn is of one; name one", len(o.BootstrapKubeconfigs))
	}
	o.aws = &pair
	return nil
}
