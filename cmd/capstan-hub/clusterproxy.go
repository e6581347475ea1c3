package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/leaderelection"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
	"github.com/capstan-io/capstan/internal/reach/aggregated"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/peers"
	"github.com/capstan-io/capstan/internal/reach/server"
	"github.com/capstan-io/capstan/internal/reach/userserver"
	"github.com/capstan-io/capstan/internal/secureserving"
)

// flagExposedServices names the list of services that are reached.
const flagExposedServices = "exposed-services"

// flagKubeAPIProxy says whether the API servers of clusters are reached.
const flagKubeAPIProxy = "enable-kube-api-proxy"

const (
	flagUserServerPort    = "user-server-port"
	flagUserServerHosts   = "user-server-hosts"
	flagUserServerURL     = "user-server-url"
	flagUserServerIssuers = "user-server-oidc-issuers"
)

// accessLease is by which one of several processes writes how clusters are reached.
const accessLease = "capstan-hub-cluster-proxy-access"

// secretUserServerCA is the name of the Secret that clients of the user server verify it by.
const secretUserServerCA = "proxy-server-ca"

// userServerFlags are about the port for clients that do not come through the API server.
type userServerFlags struct {
	port  int
	hosts []string
	// url is by which ClusterProfiles and Argo CD know it.
	url     string
	issuers []string
}

// clusterProxyFlags are about tunnels with an API server of their own.
type clusterProxyFlags struct {
	kubeconfig string
	exposed    string
	kubeAPI    bool
	namespace  string
	userServer userServerFlags
	gates      *featuregates.Set
	apiServer  aggregated.Options
	logs       logging.Options
}

func newClusterProxyCommand() *cobra.Command {
	flags := clusterProxyFlags{kubeAPI: true, namespace: program.Namespace(systemNamespace), gates: featuregates.Tunnels(),
		apiServer: aggregated.NewOptions(), logs: logging.New()}
	command := &cobra.Command{
		Use:   fleet.AddOnClusterProxy,
		Short: "Serve the APIs of managed clusters as an aggregated API of an existing Kubernetes API",
		Long: `Serve the APIs of managed clusters as an aggregated API of an existing Kubernetes API.

A standalone hub has this built in. In an existing cluster, an APIService
v1alpha1.reach.capstan.io has the API server pass requests on to this process. The agents
of clusters with the add-on cluster-proxy make their tunnels to it that way, and users of
the hub reach the clusters. Without --tls-cert-file, it makes its serving certificate, keeps
it in Secret cluster-proxy-serving-cert in the namespace of the Service, and writes
caBundle of the APIService. Several processes may run: each agent has a tunnel to one of
them, through which the others reach its cluster, too. They find each other by Leases.

With --user-server-port, clients also reach clusters by https://HOST:PORT/CLUSTER/PATH, with
a token or a client certificate of the hub, or a token of the cluster. Secret
proxy-server-ca has what verifies the port.
With the feature gate ClusterProfile, ClusterProfiles of clusters with the add-on name that
way to them. With GitOpsCluster, Argo CD knows the clusters of GitOpsClusters by it.`,
		Example: `  capstan-hub cluster-proxy --kubeconfig ~/.kube/config --secure-port 9443`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *clusterProxyFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "File with the access to the API (default: that of the pod this runs in).")
	flags.StringVar(&f.exposed, flagExposedServices, f.exposed, "ConfigMap, as NAMESPACE/NAME, with the services of clusters that users of the hub "+
		"may reach. Without it they reach none.")
	flags.BoolVar(&f.kubeAPI, flagKubeAPIProxy, f.kubeAPI,
		"Let requests for the API servers of clusters through. Otherwise only services are reached.")
	flags.StringVar(&f.namespace, "lease-namespace", f.namespace, "Namespace of the Leases by which several processes find each other; it must exist.")
	flags.IntVar(&f.userServer.port, flagUserServerPort, f.userServer.port,
		"Port at which clusters are served by https://HOST:PORT/CLUSTER/PATH, besides the API; 0 for none.")
	flags.StringSliceVar(&f.userServer.hosts, flagUserServerHosts, f.userServer.hosts,
		"Names and IP addresses by which clients know that port. The serving certificate is valid for them, too.")
	flags.StringSliceVar(&f.userServer.issuers, flagUserServerIssuers, f.userServer.issuers,
		"URLs of OIDC issuers whose tokens, if the hub does not know them, are left to the cluster that a client asks for at that port.")
	flags.StringVar(&f.userServer.url, flagUserServerURL, f.userServer.url,
		"URL of that port as ClusterProfiles and Argo CD have it, such as https://HOST:PORT, for the feature gates "+
			string(featuregates.ClusterProfile)+" and "+string(featuregates.GitOpsCluster)+".")
	f.gates.AddFlag(flags)
	f.apiServer.AddFlags(flags)
	f.logs.AddFlags(flags)
}

func (f *clusterProxyFlags) run(ctx context.Context) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	gates := f.accessGates()
	if err := f.userServer.validate(&f.apiServer, gates); err != nil {
		return err
	}
	if err := f.checkKubeAPI(gates); err != nil {
		return err
	}
	options, err := f.options()
	if err != nil {
		return err
	}
	config, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	if options.Peers, err = f.peers(ctx, config); err != nil {
		return err
	}
	tunnels := server.New(options)
	f.apiServer.UseKubeconfig(f.kubeconfig)
	address := accessprovider.NewAddress()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return tunnels.Run(ctx, config) })
	all.Go(func() error {
		return aggregated.Run(ctx, clusterProxyAPI(tunnels, f.userServer, address), f.apiServer, config)
	})
	if len(gates) > 0 {
		all.Go(func() error { return f.presentAccessElected(ctx, config, address) })
	}
	return all.Wait()
}

// accessGates are the gates that are on of those with which something names the user server.
func (f *clusterProxyFlags) accessGates() (on []featuregate.Feature) {
	for _, gate := range []featuregate.Feature{featuregates.ClusterProfile, featuregates.GitOpsCluster} {
		if f.gates.Enabled(gate) {
			on = append(on, gate)
		}
	}
	return on
}

// presentAccessElected presents access while this process holds a Lease: several would undo what others write while they do not know the
// same certificates, or have other URLs. A process that loses the Lease keeps its tunnels.
func (f *clusterProxyFlags) presentAccessElected(ctx context.Context, config *rest.Config, address *accessprovider.Address) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	lock, err := leaderelection.Lock(client.CoordinationV1(), f.namespace, accessLease)
	if err != nil {
		return err
	}
	for {
		err := leaderelection.Lead(ctx, lock, func(ctx context.Context) error { return f.presentAccess(ctx, config, address) })
		if !errors.Is(err, leaderelection.ErrLost) {
			return err
		}
		klog.FromContext(ctx).Error(err, "Another process may write how clusters are reached", "lease", accessLease)
	}
}

// presentAccess has ClusterProfiles and the Secrets of Argo CDs name the user server, until the context ends.
func (f *clusterProxyFlags) presentAccess(ctx context.Context, config *rest.Config, address *accessprovider.Address) error {
	gates := featuregates.Hub()
	for _, gate := range f.accessGates() {
		if err := gates.Set(string(gate) + "=true"); err != nil {
			return err
		}
	}
	controllers := hub.Options{Groups: []string{hub.GroupAccess}, Gates: gates, Access: &accessprovider.Options{
		Address: address, Server: func(url, cluster string) string { return url + "/" + cluster }}}
	if err := checkAPI(config, controllers); err != nil {
		return err
	}
	options := hub.ManagerOptions(controllers)
	options.Metrics, options.HealthProbeBindAddress = metricsserver.Options{BindAddress: secureserving.None}, secureserving.None
	options.Controller.SkipNameValidation = ptr.To(true) // there is another manager each time that this process leads
	manager, err := newManager(config, options, controllers)
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

// peers are the other processes that serve the same API.
func (f *clusterProxyFlags) peers(ctx context.Context, config *rest.Config) (*peers.Peers, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: ask who this process is: %w", config.Host, err)
	}
	return peers.New(peers.Options{
		Version: api.Aggregated, Address: f.apiServer.PeerAddress(), Namespace: f.namespace, User: self.Status.UserInfo.Username,
		Access: func(ctx context.Context) (*rest.Config, error) { return aggregated.Access(ctx, config, api.Aggregated) },
	}), nil
}

// checkKubeAPI refuses feature gates by which clients are told how API servers are reached, which are not.
func (f *clusterProxyFlags) checkKubeAPI(access []featuregate.Feature) error {
	if f.kubeAPI || len(access) == 0 {
		return nil
	}
	return fmt.Errorf("--%s=false: with --feature-gates=%s=true, clients reach the API servers of clusters: leave one of the two out",
		flagKubeAPIProxy, access[0])
}

func (f *clusterProxyFlags) options() (server.Options, error) {
	o := server.Options{Version: api.Aggregated, ServicesOnly: !f.kubeAPI}
	if f.exposed == "" {
		return o, nil
	}
	namespace, name, _ := strings.Cut(f.exposed, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return o, fmt.Errorf("--%s=%q is no name of a ConfigMap: write it as NAMESPACE/NAME, such as %s/%s", flagExposedServices, f.exposed,
			fleet.NamespaceAddOn, fleet.ConfigMapExposedServices)
	}
	o.ExposedServices = types.NamespacedName{Namespace: namespace, Name: name}
	return o, nil
}

// validate refuses flags of which one makes no sense without, or with, the other.
func (f *userServerFlags) validate(o *aggregated.Options, access []featuregate.Feature) error {
	switch {
	case f.port < 0 || f.port > 65535:
		return fmt.Errorf("--%s=%d is no port: use one from 1 to 65535, or 0 for none", flagUserServerPort, f.port)
	case f.port != 0 && f.port == o.SecureServing.BindPort:
		return fmt.Errorf("--%s=%d is that of --secure-port: use another one", flagUserServerPort, f.port)
	case len(f.hosts) > 0 && f.port == 0:
		return fmt.Errorf("--%s is for --%s, which is 0: set that, too", flagUserServerHosts, flagUserServerPort)
	case len(f.hosts) > 0 && o.SecureServing.ServerCert.CertKey.CertFile != "":
		return fmt.Errorf("--%s: the certificate of --tls-cert-file is valid for its own names: leave one of the two out", flagUserServerHosts)
	}
	if len(f.issuers) > 0 && f.port == 0 {
		return fmt.Errorf("--%s is for --%s, which is 0: set that, too", flagUserServerIssuers, flagUserServerPort)
	}
	for _, issuer := range f.issuers {
		if parsed, err := url.Parse(issuer); err != nil || parsed.Scheme != "https" || parsed.Host == "" {
			return fmt.Errorf("--%s: %q is no issuer: write its URL as its tokens have it, such as https://login.example.com", flagUserServerIssuers, issuer)
		}
	}
	for _, host := range f.hosts {
		isName := len(validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*."))) == 0
		if net.ParseIP(host) == nil && !isName {
			return fmt.Errorf("--%s: %q is neither a name such as proxy.example.com nor an IP address", flagUserServerHosts, host)
		}
	}
	return f.validateURL(o, access)
}

// validateURL refuses URLs at which the port cannot be, and feature gates that need one.
func (f *userServerFlags) validateURL(o *aggregated.Options, access []featuregate.Feature) error {
	switch {
	case len(access) > 0 && (f.url == "" || f.port == 0):
		return fmt.Errorf("--feature-gates=%s=true: clusters are reached by the user server: set --%s and --%s", access[0], flagUserServerPort,
			flagUserServerURL)
	case f.url == "":
		return nil
	case len(access) == 0:
		return fmt.Errorf("--%s is for ClusterProfiles and GitOpsClusters: set --feature-gates=%s=true or %s=true, or leave it out",
			flagUserServerURL, featuregates.ClusterProfile, featuregates.GitOpsCluster)
	}
	at, err := url.Parse(f.url)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.Host != strings.TrimPrefix(f.url, "https://") {
		return fmt.Errorf("--%s=%q is no URL of a server: write it as https://HOST:PORT", flagUserServerURL, f.url)
	}
	if made := o.SecureServing.ServerCert.CertKey.CertFile == ""; made && !f.isFor(at.Hostname()) {
		return fmt.Errorf("--%s=%q: the certificate is not valid for %s: add it to --%s", flagUserServerURL, f.url, at.Hostname(),
			flagUserServerHosts)
	}
	return nil
}

// isFor reports whether clients take a certificate for the hosts as one for this host: a wildcard stands for one label of a name. It is
// also one for the Service of the APIService, whose name is not known yet.
func (f *userServerFlags) isFor(host string) bool {
	if strings.HasSuffix(host, ".svc") {
		return true
	}
	certificate := &x509.Certificate{}
	for _, host := range f.hosts {
		if ip := net.ParseIP(host); ip != nil {
			certificate.IPAddresses = append(certificate.IPAddresses, ip)
		} else {
			certificate.DNSNames = append(certificate.DNSNames, host)
		}
	}
	return certificate.VerifyHostname(host) == nil
}

// direct is the port for clients that do not come through the API server, or nil.
func (f *userServerFlags) direct(tunnels *server.Server, address *accessprovider.Address,
	codecs runtime.NegotiatedSerializer) *aggregated.Direct {
	if f.port == 0 {
		return nil
	}
	return &aggregated.Direct{
		Port: f.port, Hosts: f.hosts, CASecret: secretUserServerCA,
		Published: func(ca []byte) { address.Publish(f.url, ca) },
		Handler: func(hub http.Handler, tokens authenticator.Token) http.Handler {
			return userserver.New(userserver.Options{Version: api.Aggregated, API: hub, Clusters: tunnels.Handler(http.NotFoundHandler(), codecs),
				Tokens: tokens, Issuers: f.issuers, Codecs: codecs})
		},
	}
}

// clusterProxyAPI is the group that tunnels with an API server of their own serve.
func clusterProxyAPI(tunnels *server.Server, users userServerFlags, address *accessprovider.Address) aggregated.API {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	metav1.AddToGroupVersion(scheme, api.Aggregated)
	codecs := serializer.NewCodecFactory(scheme)
	return aggregated.API{
		Name: "capstan-cluster-proxy", Version: api.Aggregated, Scheme: scheme,
		Install: func(server *genericapiserver.GenericAPIServer, _ authorizer.Authorizer) error {
			return tunnels.Install(server)
		},
		Handler:     func(next http.Handler) http.Handler { return tunnels.Handler(next, codecs) },
		LongRunning: []string{fleet.SubresourceAttach, fleet.SubresourcePortForward, fleet.SubresourceProxy, fleet.SubresourceStream},
		Ready:       tunnels.Ready, ServingSecret: "cluster-proxy-serving-cert", Direct: users.direct(tunnels, address, codecs),
	}
}
