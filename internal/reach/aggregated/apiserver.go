// Package aggregated serves a group of the hub's API by an API server of its own, for a hub in an existing cluster: by an APIService, the
// API server of that cluster passes requests for the group on to it, with the name of who sends them.
package aggregated

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/capstan-io/capstan/internal/controlplane/apimetrics"
	"github.com/capstan-io/capstan/internal/reach/lasting"
)

// API is a group in one version, and who answers for it.
type API struct {
	// Name is that of the API server in its logs.
	Name    string
	Version schema.GroupVersion
	Scheme  *runtime.Scheme
	// Definitions describe the kinds of the group for OpenAPI documents; nil if it has none.
	Definitions common.GetOpenAPIDefinitions
	// Install adds the group to a server, whose authorizer knows who may what on the hub.
	Install func(*genericapiserver.GenericAPIServer, authorizer.Authorizer) error
	// Handler wraps the handler of the group, behind authentication and authorization.
	Handler func(http.Handler) http.Handler
	// LongRunning are the subresources whose requests have no time limit.
	LongRunning []string
	// Ready says why requests cannot be answered yet, or any more.
	Ready func() error
	// ServingSecret is the name of the Secret with the serving certificate, in the namespace of the Service of the APIService.
	ServingSecret string
	// Direct is where clients reach the process other than through the API server; nil if they do not.
	Direct *Direct
}

// Direct is a second port of the process, with the same certificate.
type Direct struct {
	Port int
	// Hosts are the names and IP addresses by which clients know the process there.
	Hosts []string
	// CASecret is the name of the Secret, next to that of the certificate, whose ca.crt verifies the certificate.
	CASecret string
	// Published is called with what verifies the certificate when it changes, and once with nothing if the certificate is in files; nil is
	// not.
	Published func(ca []byte)
	// Handler answers. It gets the handler of the API, which authenticates and authorizes, and who knows the tokens of the hub.
	Handler func(api http.Handler, tokens authenticator.Token) http.Handler
}

// apiService is the name of the APIService of the group.
func (a *API) apiService() string { return a.Version.Version + "." + a.Version.Group }

// Options configure the API server.
type Options struct {
	// SecureServing is where, and with which certificate.
	SecureServing *genericoptions.SecureServingOptions
	// Authentication and Authorization delegate to the API server of the existing cluster.
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *genericoptions.DelegatingAuthorizationOptions
}

// DefaultPort is at which requests of the API server are expected.
const DefaultPort = 9443

// NewOptions returns the defaults.
func NewOptions() Options {
	o := Options{
		SecureServing:  genericoptions.NewSecureServingOptions(),
		Authentication: genericoptions.NewDelegatingAuthenticationOptions(),
		Authorization:  genericoptions.NewDelegatingAuthorizationOptions(),
	}
	o.SecureServing.BindPort = DefaultPort
	return o
}

// AddFlags adds those about serving.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.SecureServing.AddFlags(all)
	for _, name := range []string{"bind-address", "secure-port", "tls-min-version", "tls-cipher-suites"} {
		flags.AddFlag(all.Lookup(name))
	}
	files := &o.SecureServing.ServerCert.CertKey
	flags.StringVar(&files.CertFile, "tls-cert-file", files.CertFile, "File with the serving certificate, which is read again when it changes. "+
		"Without it, the gateway makes one and has the APIService trust it.")
	flags.StringVar(&files.KeyFile, "tls-private-key-file", files.KeyFile, "File with the private key of --tls-cert-file.")
}

// UseKubeconfig has the API server of the kubeconfig authenticate and authorize callers; empty is that of the cluster of the pod.
func (o *Options) UseKubeconfig(file string) {
	o.Authentication.RemoteKubeConfigFile, o.Authorization.RemoteKubeConfigFile = file, file
}

// PeerAddress is HOST:PORT at which other processes that serve the same API reach this one; on a machine without a network, none does.
func (o *Options) PeerAddress() string {
	host := o.SecureServing.BindAddress
	if routable, err := utilnet.ResolveBindAddress(host); err == nil && host.IsUnspecified() {
		host = routable
	}
	return net.JoinHostPort(host.String(), strconv.Itoa(o.SecureServing.BindPort))
}

// Run serves an API until ctx ends. It reads and writes the serving certificate through the API of client, unless that is in files.
func Run(ctx context.Context, api API, o Options, client *rest.Config) error {
	if err := o.validate(); err != nil {
		return err
	}
	config := api.describe()
	if err := o.apply(config); err != nil {
		return err
	}
	fresh, err := o.freshAuthorizer()
	if err != nil {
		return err
	}
	api.handle(config, newRights(fresh))
	if err := api.certify(ctx, config.SecureServing, client); err != nil || ctx.Err() != nil {
		return err
	}
	server, err := api.newServer(config)
	if err != nil {
		return err
	}
	prepared := server.PrepareRun()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return prepared.RunWithContext(ctx) })
	if api.Direct != nil {
		all.Go(func() error { return o.serveDirectly(ctx, api.Direct, server, client) })
	}
	return all.Wait()
}

// newServer returns a server that answers for the group, and has the metrics of all parts of the process.
func (a *API) newServer(config *genericapiserver.Config) (*genericapiserver.GenericAPIServer, error) {
	server, err := config.Complete(nil).New(a.Name, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", a.Name, err)
	}
	apimetrics.Install(server.Handler.NonGoRestfulMux)
	if err := a.Install(server, config.Authorization.Authorizer); err != nil {
		return nil, fmt.Errorf("serve %s: %w", a.Version, err)
	}
	return server, nil
}

// Access is that to a process which serves the group of an APIService, as the user of client: what the API server itself goes by.
func Access(ctx context.Context, client *rest.Config, version schema.GroupVersion) (*rest.Config, error) {
	services, err := apiregistrationclient.NewForConfig(client)
	if err != nil {
		return nil, err
	}
	name := version.Version + "." + version.Group
	api, err := services.APIServices().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get APIService %s: %w", name, err)
	}
	if api.Spec.Service == nil || len(api.Spec.CABundle) == 0 {
		return nil, fmt.Errorf("APIService %s has no spec.service, or no spec.caBundle", name)
	}
	access := rest.CopyConfig(client)
	access.Host, access.APIPath = "https://"+hostOf(api), ""
	access.CAFile, access.CAData, access.ServerName, access.Insecure = "", api.Spec.CABundle, "", false
	return access, nil
}

// hostOf is the name by which the API server knows the server of an APIService.
func hostOf(api *apiregistrationv1.APIService) string {
	return api.Spec.Service.Name + "." + api.Spec.Service.Namespace + ".svc"
}

func (o *Options) validate() error {
	problems := o.SecureServing.Validate()
	problems = append(problems, o.Authentication.Validate()...)
	return errors.Join(append(problems, o.Authorization.Validate()...)...)
}

// describe says what is served.
func (a *API) describe() *genericapiserver.Config {
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(a.Scheme))
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.EnableMetrics = false // newServer installs the endpoint
	config.AddReadyzChecks(healthz.NamedCheck(a.Name, func(*http.Request) error { return a.Ready() }))
	config.LongRunningFunc = filters.BasicLongRunningRequestCheck(sets.NewString("watch", "proxy"), sets.NewString(a.LongRunning...))
	if a.Definitions != nil {
		namer := openapi.NewDefinitionNamer(a.Scheme)
		config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(a.definitions, namer)
		config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(a.definitions, namer)
	}
	return config
}

// handle has the handler of the group answer what the stock chain of handlers lets through, as long as there is a right to it.
func (a *API) handle(config *genericapiserver.Config, r *rights) {
	stock := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return stock(lasting.Handler(r.handler(a.Handler(handler)), c.Authorization.Authorizer, c.Serializer), c)
	}
}

// apply says where and to whom the API is served.
func (o *Options) apply(config *genericapiserver.Config) error {
	if err := o.SecureServing.WithLoopback().ApplyToConfig(config); err != nil {
		return fmt.Errorf("prepare to serve: %w", err)
	}
	if err := o.Authentication.ApplyTo(&config.Authentication, config.SecureServing, config.OpenAPIConfig); err != nil {
		return fmt.Errorf("prepare to authenticate callers: %w", err)
	}
	if err := o.Authorization.ApplyTo(&config.Authorization); err != nil {
		return fmt.Errorf("prepare to authorize callers: %w", err)
	}
	return nil
}

// freshAuthorizer sends the API server a review each time, with a client that takes nothing from the limit of the one for callers.
func (o *Options) freshAuthorizer() (authorizer.Authorizer, error) {
	options := *o.Authorization
	options.AllowCacheTTL, options.DenyCacheTTL = 0, 0
	info := genericapiserver.AuthorizationInfo{}
	if err := options.ApplyTo(&info); err != nil {
		return nil, fmt.Errorf("prepare to authorize what is open: %w", err)
	}
	return info.Authorizer, nil
}

// certify gives the server a certificate of its own, if it has none, which is renewed until ctx ends.
func (a *API) certify(ctx context.Context, serving *genericapiserver.SecureServingInfo, client *rest.Config) error {
	if serving.Cert != nil {
		a.Direct.publish(nil)
		return nil
	}
	made, err := newCertificate(client, a.apiService(), a.ServingSecret)
	if err != nil {
		return err
	}
	if a.Direct != nil {
		made.hosts, made.caSecret, made.published = a.Direct.Hosts, a.Direct.CASecret, a.Direct.publish
	}
	made.await(ctx)
	serving.Cert = made
	go made.keep(ctx)
	return nil
}

// definitions describe the kinds of the group and what they consist of. They stay in memory.
func (a *API) definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := generatedopenapi.GetOpenAPIDefinitions(ref)
	maps.DeleteFunc(all, func(name string, _ common.OpenAPIDefinition) bool {
		return !strings.HasPrefix(name, "io.k8s.apimachinery.")
	})
	maps.Copy(all, a.Definitions(ref))
	return all
}
