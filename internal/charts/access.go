package charts

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// access is a cluster as Helm wants it: the context of a kubeconfig, with a namespace. It implements
// genericclioptions.RESTClientGetter.
type access struct{ context, namespace string }

// ToRawKubeConfigLoader is the kubeconfig, which may be several files.
func (a access) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: a.context}
	overrides.Context.Namespace = a.namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), overrides)
}

// ToRESTConfig goes the way to the cluster that all commands go.
func (a access) ToRESTConfig() (*rest.Config, error) {
	config, err := a.ToRawKubeConfigLoader().ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the API server's priority and fairness is the throttle
	config.WarningHandler = rest.NoWarnings{}
	return config, forwardproxy.Use(config)
}

// ToDiscoveryClient tells what the cluster serves.
func (a access) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	config, err := a.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return memory.NewMemCacheClient(client), nil
}

// ToRESTMapper tells how the cluster serves a kind.
func (a access) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := a.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(client), nil
}
