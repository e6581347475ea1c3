package controlplane

import (
	"fmt"
	"net/http"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	registry "k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	kubeoptions "k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"

	"github.com/capstan-io/capstan/internal/controlplane/apiserverconfig"
	"github.com/capstan-io/capstan/internal/controlplane/direct"
	"github.com/capstan-io/capstan/internal/controlplane/scope"
	"github.com/capstan-io/capstan/internal/reach/lasting"
)

// serverConfigs are the configurations of the three servers that answer one after the other: aggregated APIs, the
// Kubernetes groups, custom resources.
type serverConfigs struct {
	aggregator *aggregatorapiserver.Config
	native     *controlplaneapiserver.Config
	extensions *apiextensionsapiserver.Config
	// groups are served with those of Kubernetes.
	groups []APIGroup
}

// surroundings are what an API server works with, in addition to its options.
type surroundings struct {
	// loopback is by which it calls itself, in memory.
	loopback *rest.Config
	// embedded is the storage, unless nil.
	embedded *direct.Storage
	services *serviceResolver
	// hosting are let in, unless nil.
	hosting *hostingUsers
	// refusals are of agents that are not let in any more.
	refusals refusals
	// extensions answer in front of the API.
	extensions []Extension
	// endpoints are where any client is let through.
	endpoints []string
	// groups are served in addition to those of Kubernetes.
	groups []APIGroup
	// servers is how many there are on the same storage, as far as the CRD server is concerned. With more than one it waits five seconds
	// before it says that a CRD is established, for the others to notice.
	servers int
}

// newServer builds the API server. Nothing runs yet.
func newServer(options kubeoptions.CompletedOptions, s surroundings) (*aggregatorapiserver.APIAggregator, error) {
	configs, err := newServerConfigs(options, s)
	if err != nil {
		return nil, err
	}
	if err := leaveToEndpoints(&configs.aggregator.GenericConfig.Config, s.endpoints); err != nil {
		return nil, err
	}
	return configs.chain()
}

func newServerConfigs(options kubeoptions.CompletedOptions, s surroundings) (*serverConfigs, error) {
	generic, err := newGenericConfig(options, s.loopback, []*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme,
		aggregatorscheme.Scheme}, s.groups)
	if err != nil {
		return nil, fmt.Errorf("configure the API server: %w", err)
	}
	// Ours does the same at once and in parallel; the stock one starts by waiting a second.
	generic.DisabledPostStartHooks.Insert(rbacrest.PostStartHookName)
	generic.EffectiveVersion = apiserverconfig.ReportVersion(generic.EffectiveVersion)
	// The endpoint is ours too: it has the metrics of all parts of the process.
	generic.EnableMetrics = false
	if s.hosting != nil {
		if err := s.hosting.join(&generic.Authentication); err != nil {
			return nil, err
		}
	}

	generic.Authentication.Authenticator = s.refusals.credentials.Authenticator(generic.Authentication.Authenticator)
	authorizers := []union.NamedAuthorizer{
		{AuthorizerName: "cut-off", Authorizer: authorizer.AuthorizerFunc(s.refusals.cutOff.Authorize)},
		{AuthorizerName: "others", Authorizer: generic.Authorization.Authorizer}}
	for i, extension := range s.extensions {
		if extension.Authenticator != nil {
			generic.Authentication.Authenticator = extension.Authenticator(generic.Authentication.Authenticator)
		}
		authorizers = append(authorizers, union.NamedAuthorizer{AuthorizerName: fmt.Sprintf("extension-%d", i), Authorizer: extension.Authorizer})
	}
	generic.Authorization.Authorizer, err = union.New(authorizers...)
	if err != nil {
		return nil, err
	}

	native, initializers, err := controlplaneapiserver.CreateConfig(options, generic.Config, generic.informers, nil, generic.storage,
		s.services, nil)
	if err != nil {
		return nil, fmt.Errorf("configure the Kubernetes APIs: %w", err)
	}
	serving, authn := options.SecureServing.ServerCert.CertKey, options.Authentication
	err = apiserverconfig.Follow(generic.Config, &native.ClusterAuthenticationInfo, authn.ClientCert.CAContentProvider, apiserverconfig.Files{
		ServingCert: serving.CertFile, ServingKey: serving.KeyFile, RequestHeaderCA: authn.RequestHeader.ClientCAFile,
	})
	if err != nil {
		return nil, fmt.Errorf("follow the certificates of the API server: %w", err)
	}
	if s.hosting != nil {
		// Clients send a certificate only to a server that names its CA.
		if err := generic.Authentication.ApplyClientCert(s.hosting.clientCA, generic.SecureServing); err != nil {
			return nil, fmt.Errorf("delegate authentication: %w", err)
		}
	}
	extensions, err := controlplaneapiserver.CreateAPIExtensionsConfig(*generic.Config, generic.informers, initializers, options, s.servers,
		s.services, s.services.inProcess(native))
	if err != nil {
		return nil, fmt.Errorf("configure custom resources: %w", err)
	}
	aggregator, err := controlplaneapiserver.CreateAggregatorConfig(*generic.Config, options, generic.informers, s.services,
		native.ProxyTransport, native.PeerProxy, initializers)
	if err != nil {
		return nil, fmt.Errorf("configure aggregated APIs: %w", err)
	}
	// The stock one reads Services and EndpointSlices, which a hub does not have.
	aggregator.ExtraConfig.DisableRemoteAvailableConditionController = true
	// All requests come through the aggregator.
	if err := narrowToOwn(&aggregator.GenericConfig.Config, generic.informers, s.refusals); err != nil {
		return nil, err
	}
	extend(&aggregator.GenericConfig.Config, s.extensions)
	showTo(&aggregator.GenericConfig.Config, s.groups)
	if s.embedded != nil {
		for _, getter := range []*registry.RESTOptionsGetter{
			&native.Generic.RESTOptionsGetter, &extensions.GenericConfig.RESTOptionsGetter, &extensions.ExtraConfig.CRDRESTOptionsGetter,
			&aggregator.GenericConfig.RESTOptionsGetter,
		} {
			*getter = s.embedded.For(*getter)
		}
	}
	return &serverConfigs{aggregator: aggregator, native: native, extensions: extensions, groups: s.groups}, nil
}

// leaveToEndpoints leaves it to the endpoints at these paths who may what.
func leaveToEndpoints(config *genericapiserver.Config, endpoints []string) error {
	below := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		below[i] = endpoint + "*"
	}
	theirs, err := path.NewAuthorizer(below)
	if err != nil {
		return err
	}
	config.Authorization.Authorizer, err = union.New(
		union.NamedAuthorizer{AuthorizerName: "endpoints", Authorizer: theirs},
		union.NamedAuthorizer{AuthorizerName: "others", Authorizer: config.Authorization.Authorizer})
	return err
}

// narrowToOwn shows agents what is theirs, for as long as it is, after the stock chain of handlers has let them through.
func narrowToOwn(config *genericapiserver.Config, shared informers.SharedInformerFactory, refusals refusals) error {
	client, err := kubernetes.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return err
	}
	watches := scope.NewWatches(config.Authorization.Authorizer, refusals.cutOff, refusals.credentials)
	if err := watches.Follow(shared); err != nil {
		return err
	}
	stock := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		handler = lasting.Handler(watches.Handler(handler), c.Authorization.Authorizer, c.Serializer)
		handler = refusals.suspension.Handler(handler, c.Serializer)
		handler = scope.Handler(handler, client.CertificatesV1().CertificateSigningRequests(), client.CoreV1(), c.Serializer)
		return refusals.wait.Handler(scope.KeepSender(stock(handler, c)), c.Authentication.Authenticator, c.Serializer)
	}
	return nil
}

// extend has extensions answer after all handlers that let a request through.
func extend(config *genericapiserver.Config, extensions []Extension) {
	before := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		for _, extension := range extensions {
			if extension.Handler != nil {
				handler = extension.Handler(handler, c.Serializer)
			}
		}
		return before(handler, c)
	}
}

// showTo lets groups see the requests that are let through.
func showTo(config *genericapiserver.Config, groups []APIGroup) {
	stock := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		for _, group := range groups {
			handler = group.Handler(handler)
		}
		return stock(handler, c)
	}
}

func (c *serverConfigs) chain() (*aggregatorapiserver.APIAggregator, error) {
	notFound := notfoundhandler.New(c.native.Generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	extensions, err := c.extensions.Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, fmt.Errorf("create the custom resource server: %w", err)
	}
	native, err := c.nativeServer(extensions.GenericAPIServer)
	if err != nil {
		return nil, fmt.Errorf("create the Kubernetes API server: %w", err)
	}
	const crdsEnabled = true
	aggregator, err := controlplaneapiserver.CreateAggregatorServer(c.aggregator.Complete(), native.GenericAPIServer,
		extensions.Informers.Apiextensions().V1().CustomResourceDefinitions(), crdsEnabled,
		c.priorities())
	if err != nil {
		return nil, fmt.Errorf("create the aggregator: %w", err)
	}
	return aggregator, nil
}

func (c *serverConfigs) nativeServer(next genericapiserver.DelegationTarget) (*controlplaneapiserver.Server, error) {
	completed := c.native.Complete()
	server, err := completed.New("capstan-hub", next)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(completed.Generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	if err := server.InstallAPIs(storageProviders(&completed, client.Discovery())...); err != nil {
		return nil, err
	}
	for _, group := range c.groups {
		info := group.Group(group.Scheme, completed.Generic.Authorization.Authorizer)
		if err := server.GenericAPIServer.InstallAPIGroup(info); err != nil {
			return nil, fmt.Errorf("serve %s: %w", group.Version, err)
		}
	}
	return server, nil
}

// priorities are the order of groups in discovery: those of this process are next to those of CRDs.
func (c *serverConfigs) priorities() map[schema.GroupVersion]controlplaneapiserver.APIServicePriority {
	priorities := controlplaneapiserver.DefaultGenericAPIServicePriorities()
	for _, group := range c.groups {
		priorities[group.Version] = controlplaneapiserver.APIServicePriority{Group: 1000, Version: 100}
	}
	return priorities
}
