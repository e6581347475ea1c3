// Package controlplane is the standalone hub: an API server for everything a hub needs and nothing else, its storage,
// its keys and certificates, and the Kubernetes controllers behind it, in one process. It knows no controller of
// Capstan's own; the program that links both hands them in.
package controlplane

import (
	"context"
	"net"
	"net/http"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	controlplaneoptions "k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
)

// Options configure a standalone hub. Start from NewOptions.
type Options struct {
	// Config is the content of ocmconfig.yaml.
	Config *ocmconfig.Config
	// Hosting is the cluster in which the hub runs as a pod; nil outside of one.
	Hosting *Hosting
	// DelegatingAuthentication also accepts the users of the hosting cluster.
	DelegatingAuthentication bool
	// Profiling serves /debug/pprof to those who may.
	Profiling bool
	// Etcd configures the embedded etcd.
	Etcd EtcdOptions
	// Admission are the plugins that run in addition to the stock ones.
	Admission []AdmissionPlugin
	// Webhooks are served in this process instead of at the service that CRDs and webhook configurations name.
	Webhooks map[types.NamespacedName]http.Handler
	// Endpoints are served at paths that end in a slash, and all below these, to everybody: they find out themselves what
	// who is in the context of a request may.
	Endpoints map[string]http.Handler
	// Extensions answer requests in front of the API.
	Extensions []Extension
	// APIGroups are served in addition to those of Kubernetes and of CRDs.
	APIGroups []APIGroup
	// CRDs are installed and kept up to date.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// Published is called with the URL of the hub and the CA that verifies it whenever the hub publishes them; nil is not.
	Published func(url string, ca []byte)
	// Info is published in ConfigMap fleet.ConfigMapHubInfo.
	Info map[string]string
	// Controllers runs the hub's controllers once the API is complete, until its context ends; nil runs none.
	Controllers ControllersFunc
	// Clock says when certificates are due; nil means the machine's.
	Clock clock.Clock

	// hostedPort is where a hub in a cluster listens.
	hostedPort int

	serving *genericoptions.SecureServingOptionsWithLoopback
	oidc    *kubeoptions.BuiltInAuthenticationOptions
	store   *genericoptions.EtcdOptions
	audit   *genericoptions.AuditOptions
}

// EtcdOptions configure the embedded etcd.
type EtcdOptions struct {
	// Directory is where it keeps its data; empty means etcd in the data directory.
	Directory string
	// ClientPort and PeerPort, when set, serve mutual TLS on localhost. The hub itself uses a private socket.
	ClientPort, PeerPort int
	// WALSizeBytes is the size of a write-ahead log file; 0 means 64 MB.
	WALSizeBytes int64
	// QuotaBytes is the quota of the database, of which the hub keeps a tenth for what makes room; 0 means etcd.DefaultQuotaBytes.
	QuotaBytes int64
	// SnapshotCount is the number of writes between two snapshots; 0 means 5000.
	SnapshotCount uint64
	// NoFsync loses data when the power fails. For tests only.
	NoFsync bool
}

// AdmissionPlugin is a plugin with the name it is known by.
type AdmissionPlugin struct {
	Name   string
	Plugin admission.Interface
}

// Extension answers requests that the API server has authenticated and authorized, or hands them on. It does so in every hub on a storage,
// whether that leads or not.
type Extension struct {
	// Authenticator says who sends requests that it knows more about than the one that it gets; nil leaves that to the other.
	Authenticator func(authenticator.Request) authenticator.Request
	// Authorizer allows requests that no role allows.
	Authorizer authorizer.Authorizer
	// Handler gets the handler to which it hands on what it does not answer, and what errors are encoded with; nil answers nothing.
	Handler func(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler
	// Run runs what the handler needs, once the API is complete and until the context ends, with a client of full privileges; nil runs
	// nothing.
	Run func(ctx context.Context, client *rest.Config) error
}

// APIGroup is a group of the API, of one version, that a part of this process answers for.
type APIGroup struct {
	// Version is that of the group, and Scheme has its kinds.
	Version schema.GroupVersion
	Scheme  *runtime.Scheme
	// Definitions describe the kinds.
	Definitions openapicommon.GetOpenAPIDefinitions
	// Group returns what answers requests. It gets what says who may what on the hub.
	Group func(scheme *runtime.Scheme, rights authorizer.UnconditionalAuthorizer) *genericapiserver.APIGroupInfo
	// Handler sees all requests that are let through before they are answered.
	Handler func(next http.Handler) http.Handler
}

// ControllersFunc runs controllers with a client of full privileges until ctx ends. It calls started when they run; the
// hub is not ready before. When several hubs share an etcd, elect is set and only one of them may act at a time.
type ControllersFunc func(ctx context.Context, client *rest.Config, elect bool, started func()) error

// NewOptions returns the defaults.
func NewOptions() *Options {
	serving := kubeoptions.NewSecureServingOptions()
	serving.BindAddress = net.IPv4zero
	return &Options{
		Config:     &ocmconfig.Config{},
		hostedPort: ocmconfig.DefaultPort,

		serving: serving,
		oidc:    kubeoptions.NewBuiltInAuthenticationOptions().WithOIDC(),
		store:   controlplaneoptions.NewOptions().Etcd,
		audit:   newAuditOptions(),
	}
}

// AddFlags adds the flags whose meaning is the API server's own.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.DelegatingAuthentication, "delegating-authentication", o.DelegatingAuthentication,
		"Also accept the users of the cluster in which the hub runs; names that begin with system: get the prefix "+hostingPrefix+
			" here. Ignored, with a warning, outside a cluster.")
	flags.BoolVar(&o.Profiling, "profiling", o.Profiling, "Serve profiles at /debug/pprof.")
	flags.StringVar(&o.Etcd.Directory, "embedded-etcd-directory", o.Etcd.Directory,
		"Folder of the embedded etcd's data (default: etcd in the data directory).")
	flags.IntVar(&o.Etcd.ClientPort, "embedded-etcd-client-port", o.Etcd.ClientPort,
		"Port on localhost, conventionally 2379, at which the embedded etcd serves clients with a certificate of the etcd CA; 0 serves the hub alone, "+
			"through a private socket.")
	flags.IntVar(&o.Etcd.PeerPort, "embedded-etcd-peer-port", o.Etcd.PeerPort,
		"Port on localhost, conventionally 2380, at which the embedded etcd serves peers with a certificate of the etcd CA, so that a member can be added "+
			"to move the data; 0 serves none.")
	flags.Int64Var(&o.Etcd.WALSizeBytes, "embedded-etcd-wal-size-bytes", o.Etcd.WALSizeBytes,
		"Size of the embedded etcd's write-ahead log files in bytes; 0 means 64 MB.")
	flags.Int64Var(&o.Etcd.QuotaBytes, "embedded-etcd-quota-bytes", o.Etcd.QuotaBytes,
		"Quota of the embedded etcd's database in bytes: from nine tenths on, the hub refuses what is new; 0 means 8 GiB, "+
			"the most that etcd advises.")
	o.addAuditFlags(flags)
	o.addStockFlags(flags)
}

// notOurs are flags of the Kubernetes API server that a hub has not.
var notOurs = sets.New(
	// ocmconfig.yaml has them.
	"secure-port", "etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix",
	// The kubeconfigs that the hub writes trust the hub's own CA.
	"cert-dir", "tls-cert-file", "tls-private-key-file",
	// There is one choice.
	"api-audiences", "authentication-config", "enable-garbage-collector", "storage-backend",
	// A hub never shares its port.
	"permit-address-sharing", "permit-port-sharing",
)

// addStockFlags adds flags of the Kubernetes API server under their own names.
func (o *Options) addStockFlags(flags *pflag.FlagSet) {
	stock := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.serving.AddFlags(stock)
	o.oidc.AddFlags(stock)
	o.store.AddFlags(stock)
	stock.Lookup("bind-address").Usage = "IP address to listen on; an unspecified one, 0.0.0.0 or ::, means all of this machine."
	stock.VisitAll(func(flag *pflag.Flag) {
		if !notOurs.Has(flag.Name) {
			flags.AddFlag(flag)
		}
	})
}
