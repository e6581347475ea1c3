package agent

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest/feedback"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/secureserving"
)

// Options are what an agent can be told. The flags are named as in the original's agents.
type Options struct {
	// BootstrapKubeconfig is the file with the credential to register with.
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
	// ClientCertExpirationSeconds asks for a lifetime of client certificates; 0 leaves it to the hub.
	ClientCertExpirationSeconds int32
	// AddOnKubeClientRegistrationAuth is how add-ons get access to the API server of the hub: csr or token.
	AddOnKubeClientRegistrationAuth string
	// AddOnTokenExpirationSeconds asks for a lifetime of tokens of add-ons; 0 leaves it to the hub.
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
	// WorkloadSourceConfig is the hub kubeconfig, which names HubKubeconfigDir in another way.
	WorkloadSourceConfig string

	accepted ignoredflags.Flags
}

// defaultHubKubeconfigDir is where the hub kubeconfig is in a pod.
const defaultHubKubeconfigDir = "/spoke/hub-kubeconfig"

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		BootstrapKubeconfig:      "/spoke/bootstrap/kubeconfig",
		HubKubeconfigDir:         defaultHubKubeconfigDir,
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
	o.FeatureGates.AddFlag(fs)
	o.accepted.AddLimits(fs, "kube-api-qps", "kube-api-burst")
}

// AddRegistrationFlags adds the flags of registration.
func (o *Options) AddRegistrationFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BootstrapKubeconfig, "bootstrap-kubeconfig", o.BootstrapKubeconfig, "kubeconfig with the credential to register with")
	fs.StringSliceVar(&o.BootstrapKubeconfigs, "bootstrap-kubeconfigs", o.BootstrapKubeconfigs,
		"kubeconfigs as --bootstrap-kubeconfig, which they replace, one of each hub to register with, in the order of preference; the agent works with one at a time")
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
	o.accepted.Add(fs, "registration-auth", ignoredflags.Only("csr"), "there is no other way to register")
}

// AddWorkFlags adds the flags of the work agent.
func (o *Options) AddWorkFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.WorkloadAgentWorkers, "workload-agent-workers", o.WorkloadAgentWorkers, "how many ManifestWorks are applied at once")
	fs.DurationVar(&o.AppliedManifestWorkEvictionGracePeriod, "appliedmanifestwork-eviction-grace-period",
		o.AppliedManifestWorkEvictionGracePeriod,
		"how long to keep what was applied for a ManifestWork that is missing on the hub, or for a hub that the agent has left; 876000h and more keep it without end")
	fs.IntVar(&o.MaxJSONRawLength, "max-json-raw-length", o.MaxJSONRawLength,
		fmt.Sprintf("bytes of JSON that a reported value of type JsonRaw may have, %d at most", feedback.MaxJSONRaw))
	fs.StringVar(&o.WorkloadSourceConfig, "workload-source-config", o.WorkloadSourceConfig, "the file "+fleet.KeyKubeconfig+
		" in --hub-kubeconfig-dir, which it names in another way")
	fs.StringVar(&o.WorkloadSourceConfig, "hub-kubeconfig", o.WorkloadSourceConfig, "the same as --workload-source-config")
	o.accepted.Add(fs, "workload-source-driver", ignoredflags.Only("kube"), "works come by the API of the hub")
	o.accepted.Add(fs, "status-sync-interval", ignoredflags.Duration, "status is reported when it changes")
	o.accepted.Add(fs, "max-feedback-watch", ignoredflags.Number, "a kind has one watch, however many works have objects of it")
	o.accepted.AddLimits(fs, "hub-kube-api-qps", "hub-kube-api-burst")
	const noCloudEvents = "works come by the API of the hub"
	o.accepted.Add(fs, "cloudevents-client-id", ignoredflags.Text, noCloudEvents)
	o.accepted.Add(fs, "cloudevents-client-codecs", ignoredflags.List, noCloudEvents)
}

// drivers are how add-ons may get access to the hub.
var drivers = []addonv1beta1.KubeClientDriver{addonv1beta1.KubeClientDriverCSR, addonv1beta1.KubeClientDriverToken}

// minCertificateLifetime is the API server's own limit, in seconds, for certificates and tokens alike.
const minCertificateLifetime = 600

// minHubConnectionTimeout is the shortest silence that may mean a hub is gone, in seconds: one that restarts takes a while.
const minHubConnectionTimeout = 5

// bootstrapKubeconfigs are the files to register with, in the order of preference.
func (o *Options) bootstrapKubeconfigs() []string {
	if len(o.BootstrapKubeconfigs) > 0 {
		return o.BootstrapKubeconfigs
	}
	return []string{o.BootstrapKubeconfig}
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
	if o.WorkloadSourceConfig == "" {
		return nil
	}
	dir, file := filepath.Split(filepath.Clean(o.WorkloadSourceConfig))
	dir = filepath.Clean(dir)
	switch {
	case file != fleet.KeyKubeconfig:
		return fmt.Errorf("--workload-source-config is %s; it must be a file %s, in the folder with the rest of the credential",
			o.WorkloadSourceConfig, fleet.KeyKubeconfig)
	case o.HubKubeconfigDir != defaultHubKubeconfigDir && filepath.Clean(o.HubKubeconfigDir) != dir:
		return fmt.Errorf("--workload-source-config is %s, which is not in --hub-kubeconfig-dir %s; leave one of them out",
			o.WorkloadSourceConfig, o.HubKubeconfigDir)
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
	if _, others := o.annotations(); len(others) > 0 {
		logger.Info("Annotations of --cluster-annotations are left out: an agent may set those of its own prefix", "keys", others, "prefix",
			fleet.AnnotationAgentPrefix)
	}
}

// Validate refuses what cannot work, naming the flag.
func (o *Options) Validate() error {
	switch {
	case o.ClusterHealthCheckPeriod <= 0:
		return fmt.Errorf("--cluster-healthcheck-period is %s; it must be more than 0, such as 1m", o.ClusterHealthCheckPeriod)
	case o.MaxCustomClusterClaims < 0:
		return fmt.Errorf("--max-custom-cluster-claims is %d; it must not be negative", o.MaxCustomClusterClaims)
	case o.ClientCertExpirationSeconds != 0 && o.ClientCertExpirationSeconds < minCertificateLifetime:
		return fmt.Errorf("--client-cert-expiration-seconds is %d; it must be 0 or at least %d", o.ClientCertExpirationSeconds,
			minCertificateLifetime)
	case !slices.Contains(drivers, addonv1beta1.KubeClientDriver(o.AddOnKubeClientRegistrationAuth)):
		return fmt.Errorf("--addon-kubeclient-registration-auth is %q; it must be csr or token", o.AddOnKubeClientRegistrationAuth)
	case o.AddOnTokenExpirationSeconds != 0 && o.AddOnTokenExpirationSeconds < minCertificateLifetime:
		return fmt.Errorf("--addon-token-expiration-seconds is %d; it must be 0 or at least %d", o.AddOnTokenExpirationSeconds,
			minCertificateLifetime)
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
	for _, file := range o.BootstrapKubeconfigs {
		if file == "" {
			return fmt.Errorf("--bootstrap-kubeconfigs: one of %d files has no name", len(o.BootstrapKubeconfigs))
		}
	}
	if len(o.BootstrapKubeconfigs) > 1 && !o.FeatureGates.Enabled(featuregates.MultipleHubs) {
		return fmt.Errorf("--bootstrap-kubeconfigs names %d hubs, and --feature-gates=%s=false allows one; name one, or leave the feature gate on", len(o.BootstrapKubeconfigs), featuregates.MultipleHubs)
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
