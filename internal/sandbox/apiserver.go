package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"

	"github.com/capstan-io/capstan/internal/controlplane/apiserverconfig"
	"github.com/capstan-io/capstan/internal/controlplane/inmemory"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

const (
	serviceNetwork       = "10.96.0.0/16"
	serviceAccountIssuer = "https://kubernetes.default.svc"

	// startTimeout is long enough for the start of an API server on a busy machine.
	startTimeout = 30 * time.Second

	// watchGrace is how long a stopping API server waits for watches to end.
	watchGrace = time.Second

	// readyCheck is the readiness check that stands for all that is not the API
	// server: controllers, scheduler, nodes.
	readyCheck = "sandbox"
)

// errNoContainers is the error of all requests that an API server would send to a kubelet.
var errNoContainers = errors.New("this is a sandbox cluster: its nodes are simulated and containers do not execute, so there are no logs and nothing " +
	"to exec into, attach to or forward to")

// apiServer is a kube-apiserver in this process.
type apiServer struct {
	// loopback reaches it with full privileges and within the process.
	loopback *rest.Config
	// done is closed when it has ended, with err saying how.
	done chan struct{}
	err  error

	started bool
	cancel  context.CancelFunc
}

// startAPIServer serves at listener from the database at etcdEndpoint until it is
// stopped; ctx only carries values. ready is its last readiness check.
func startAPIServer(ctx context.Context, listener net.Listener, etcdEndpoint string, keys *clusterKeys, ready func() error) (*apiServer,
	error) {
	stock, err := apiServerOptions(listener, etcdEndpoint, keys)
	if err != nil {
		return nil, err
	}
	completed, err := stock.Complete(ctx)
	if err != nil {
		return nil, err
	}
	completed.ServiceAccountIssuer = keys.tokens.Generator(serviceAccountIssuer)
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, err
	}
	if err := adapt(config, completed); err != nil {
		return nil, err
	}
	chain, err := config.Complete()
	if err != nil {
		return nil, err
	}
	server, err := app.CreateServerChain(chain)
	if err != nil {
		return nil, err
	}
	check := healthz.NamedCheck(readyCheck, func(*http.Request) error { return ready() })
	if err := server.GenericAPIServer.AddReadyzChecks(check); err != nil {
		return nil, err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return nil, err
	}
	memory := inmemory.NewTransport(server.GenericAPIServer.Handler)
	loopback := rest.CopyConfig(server.GenericAPIServer.LoopbackClientConfig)
	loopback.Wrap(func(http.RoundTripper) http.RoundTripper { return memory })
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &apiServer{loopback: loopback, done: make(chan struct{}), cancel: cancel}
	go func() {
		s.err = prepared.Run(life)
		close(s.done)
	}()
	return s, nil
}

func apiServerOptions(listener net.Listener, etcdEndpoint string, keys *clusterKeys) (*options.ServerRunOptions, error) {
	localhost := net.IPv4(127, 0, 0, 1)
	s := options.NewServerRunOptions()

	s.SecureServing.Listener = listener
	s.SecureServing.BindAddress = localhost
	s.SecureServing.BindPort = portOf(listener)
	serving := &s.SecureServing.ServerCert.CertKey
	serving.CertFile, serving.KeyFile = keys.Certificate(pki.APIServer)
	s.GenericServerRunOptions.AdvertiseAddress = localhost
	// Watches of clients would keep a stopping sandbox for a minute; they only have to
	// be told.
	s.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = watchGrace
	s.Etcd.StorageConfig.Transport.ServerList = []string{etcdEndpoint}
	// A cache for each of the sixty resources runs a timer every second. With the few
	// objects and watchers of a sandbox, etcd serves reads as fast.
	s.Etcd.EnableWatchCache = false

	clientCA, err := apiserverconfig.NewCABundle("client-ca-bundle", keys.Bundle(pki.ClientCA))
	if err != nil {
		return nil, fmt.Errorf("read the CA of clients: %w", err)
	}
	s.Authentication.ClientCert.CAContentProvider = clientCA
	s.Authentication.BootstrapToken.Enable = true
	s.Authentication.ServiceAccounts.Issuers = []string{serviceAccountIssuer}
	s.Authentication.ServiceAccounts.ExternalPublicKeysGetter = keys.tokens
	s.Authentication.ServiceAccounts.MaxExpiration = pki.ServiceAccountTokenLifetime
	s.Authentication.RequestHeader.ClientCAFile = keys.Bundle(pki.RequestHeaderCA)
	s.Authentication.RequestHeader.UsernameHeaders = []string{"X-Remote-User"}
	s.Authentication.RequestHeader.GroupHeaders = []string{"X-Remote-Group"}
	s.Authentication.RequestHeader.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	s.ProxyClientCertFile, s.ProxyClientKeyFile = keys.Certificate(pki.AuthProxy)

	// The Node authorizer would watch pods, volumes and more for kubelets that do
	// not exist.
	s.Authorization.Modes = []string{"RBAC"}
	s.AllowPrivileged = true
	s.ServiceClusterIPRanges = serviceNetwork
	// 127.0.0.1 is refused as an endpoint of Service kubernetes; it gets none.
	s.EndpointReconcilerType = string(reconcilers.NoneEndpointReconcilerType)
	// It taints new nodes until the node lifecycle controller finds them Ready.
	// There is none, as nothing can happen to these nodes.
	s.Admission.GenericAdmission.DisablePlugins = []string{"TaintNodesByCondition"}
	return s, nil
}

// adapt changes what options cannot say.
func adapt(config *app.Config, o options.CompletedOptions) error {
	generic := config.KubeAPIs.ControlPlane.Generic
	generic.DisabledPostStartHooks.Insert(stockHooks...)
	generic.EffectiveVersion = apiserverconfig.ReportVersion(generic.EffectiveVersion)
	config.Aggregator.GenericConfig.EffectiveVersion = generic.EffectiveVersion
	config.KubeAPIs.KubeletClientConfig.Lookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) {
		return func(context.Context, string, string) (net.Conn, error) { return nil, errNoContainers }, nil
	}
	serving, authn := o.SecureServing.ServerCert.CertKey, o.Authentication
	return apiserverconfig.Follow(generic, &config.KubeAPIs.ControlPlane.ClusterAuthenticationInfo, authn.ClientCert.CAContentProvider,
		apiserverconfig.Files{
			ServingCert: serving.CertFile, ServingKey: serving.KeyFile, RequestHeaderCA: authn.RequestHeader.ClientCAFile,
		})
}

// serving waits until the API server is ready but for what runs on top of it.
func (s *apiServer) serving(ctx context.Context) error {
	config := rest.CopyConfig(s.loopback)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	err = until(ctx, func(ctx context.Context) (bool, error) {
		var code int
		client.Discovery().RESTClient().Get().AbsPath("/readyz").Param("exclude", readyCheck).Do(ctx).StatusCode(&code)
		return code == http.StatusOK, nil
	})
	s.started = err == nil
	return err
}

// stop has the API server end. One that is still starting is let finish that first: its start hooks end the process if
// they are cut short. When ctx ends, the API server is left as it is.
func (s *apiServer) stop(ctx context.Context) {
	if !s.started {
		starting, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		_ = s.serving(starting) // either way it is to end now
	}
	if ctx.Err() == nil {
		s.cancel()
	}
}
