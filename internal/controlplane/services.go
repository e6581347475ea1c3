package controlplane

import (
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/capstan-io/capstan/internal/controlplane/inmemory"
)

// serviceResolver finds the services that APIServices and webhooks name. A hub has no Services of its own: they are
// the hosting cluster's, found by DNS, or at the addresses of the configuration file, or in this process.
type serviceResolver struct {
	addresses map[string]string
	handlers  map[types.NamespacedName]http.Handler
	stock     webhook.ServiceResolver
}

func newServiceResolver(o *Options) *serviceResolver {
	return &serviceResolver{
		addresses: o.Config.Aggregator.ServiceAddresses,
		handlers:  o.Webhooks,
		stock:     webhook.NewDefaultServiceResolver(),
	}
}

// ResolveEndpoint implements webhook.ServiceResolver.
func (s *serviceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	if address, found := s.addresses[namespace+"/"+name]; found {
		return &url.URL{Scheme: "https", Host: address}, nil
	}
	return s.stock.ResolveEndpoint(namespace, name, port)
}

// inProcess makes webhooks of services that this process serves itself call it in memory: no Deployment, no network,
// no certificate to keep. All others use the stock storage.
func (s *serviceResolver) inProcess(native *controlplaneapiserver.Config) webhook.AuthenticationInfoResolverWrapper {
	stock := webhook.NewDefaultAuthenticationInfoResolverWrapper(native.ProxyTransport, native.Generic.EgressSelector,
		native.Generic.LoopbackClientConfig, native.Generic.TracerProvider)
	return func(delegate webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		next := stock(delegate)
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: next.ClientConfigFor,
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				handler, ours := s.handlers[types.NamespacedName{Namespace: namespace, Name: name}]
				if !ours {
					return next.ClientConfigForService(name, namespace, port)
				}
				memory := inmemory.NewTransport(handler)
				return &rest.Config{WrapTransport: func(http.RoundTripper) http.RoundTripper { return memory }}, nil
			},
		}
	}
}
