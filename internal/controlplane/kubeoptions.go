package controlplane

import (
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	controlplaneoptions "k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	certapproval "k8s.io/kubernetes/plugin/pkg/admission/certificates/approval"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/ctbattest"
	certsigning "k8s.io/kubernetes/plugin/pkg/admission/certificates/signing"
	certsubjectrestriction "k8s.io/kubernetes/plugin/pkg/admission/certificates/subjectrestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"

	"github.com/capstan-io/capstan/internal/controlplane/apiserverconfig"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

const (
	serviceAccountIssuer = "https://kubernetes.default.svc"

	// drainTimeout is how long a stopping API server waits for clients to take their leave. Requests that are not
	// watches are always complete.
	drainTimeout = time.Second

	// revokedWithin is how long a token may still be accepted after its Secret or service account was deleted, so that it need
	// not be read for each of many requests in a row.
	revokedWithin = time.Second

	// proxyName is the common name of the hub's own certificate for proxying.
	proxyName = "system:auth-proxy"
)

// stockPlugins are the Kubernetes admission plugins of a hub. Admission policies are on, which the original
// leaves off: they cost nothing while there is none.
var stockPlugins = sets.New(
	lifecycle.PluginName,
	serviceaccount.PluginName,
	certapproval.PluginName,
	certsigning.PluginName,
	ctbattest.PluginName,
	certsubjectrestriction.PluginName,
	mutatingadmissionpolicy.PluginName,
	mutatingwebhook.PluginName,
	validatingadmissionpolicy.PluginName,
	validatingwebhook.PluginName,
	resourcequota.PluginName,
)

// seldomRead are the resources whose watchers are few and in this process. They read from etcd directly: a watch cache
// wakes up every second whether or not there is anything to do.
var seldomRead = []string{
	"apiservices.apiregistration.k8s.io",
	"clustertrustbundles.certificates.k8s.io",
	"customresourcedefinitions.apiextensions.k8s.io",
	"flowschemas.flowcontrol.apiserver.k8s.io",
	"mutatingadmissionpolicies.admissionregistration.k8s.io",
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io",
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
	"resourcequotas",
	"validatingadmissionpolicies.admissionregistration.k8s.io",
	"validatingadmissionpolicybindings.admissionregistration.k8s.io",
	"validatingwebhookconfigurations.admissionregistration.k8s.io",
}

// writtenOnly are the resources that are often written and hardly ever read. A watch cache would hold them all, decoded.
var writtenOnly = []string{"events", "events.events.k8s.io"}

func uncached() (sizes []string) {
	for _, resource := range slices.Concat(seldomRead, writtenOnly) {
		sizes = append(sizes, resource+"#0")
	}
	return sizes
}

// kubeOptions configures the Kubernetes API server. Priority and fairness stays on, which the original control plane turns off: it is the
// only limit on the requests of agents and users. Administrators in system:masters are exempt, and so is the hub itself, whose controllers
// are limited by their workers alone.
func (o *Options) kubeOptions(keys *pki.Store, storage *storage, listener net.Listener, a address) (*controlplaneoptions.Options, error) {
	k := controlplaneoptions.NewOptions()

	k.SecureServing = o.serving
	k.SecureServing.Listener = listener
	k.SecureServing.ServerCert.CertKey.CertFile, k.SecureServing.ServerCert.CertKey.KeyFile = keys.Certificate(pki.APIServer)
	k.GenericServerRunOptions.ExternalHost = a.host
	k.GenericServerRunOptions.AdvertiseAddress = net.ParseIP(a.host)
	if k.GenericServerRunOptions.AdvertiseAddress == nil {
		k.GenericServerRunOptions.AdvertiseAddress = net.IPv4(127, 0, 0, 1)
	}

	// Watches of agents would keep a stopping hub for a minute; they only have to be notified.
	k.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = drainTimeout

	k.Etcd = o.store
	k.Etcd.StorageConfig.Prefix = o.Config.Etcd.Prefix
	k.Etcd.StorageConfig.Transport = storage.transport
	k.Etcd.WatchCacheSizes = append(uncached(), k.Etcd.WatchCacheSizes...)
	k.Features.EnableProfiling = o.Profiling
	// They are for the endpoint that is not used; the API server would log that they are empty as an error.
	k.Metrics = nil

	var err error
	if k.Audit, err = o.auditOptions(); err != nil {
		return nil, err
	}
	if err := o.authenticate(k, keys); err != nil {
		return nil, err
	}
	k.Authorization.Modes = []string{"RBAC"}
	k.Admission.GenericAdmission = o.admission()
	return k, nil
}

func (o *Options) authenticate(k *controlplaneoptions.Options, keys *pki.Store) error {
	authn := k.Authentication
	authn.OIDC = o.oidc.OIDC
	clientCA, err := apiserverconfig.NewCABundle("client-ca-bundle", keys.Bundle(pki.ClientCA))
	if err != nil {
		return fmt.Errorf("read the CA of clients: %w", err)
	}
	authn.ClientCert.CAContentProvider = clientCA
	authn.BootstrapToken.Enable = true
	authn.TokenSuccessCacheTTL = revokedWithin

	authn.ServiceAccounts.Issuers = []string{serviceAccountIssuer}
	authn.ServiceAccounts.MaxExpiration = pki.ServiceAccountTokenLifetime
	authn.ServiceAccounts.Lookup = true
	authn.ServiceAccounts.OptionalTokenGetter = newTokenObjects

	aggregator := o.Config.Aggregator
	authn.RequestHeader.UsernameHeaders = aggregator.RequestheaderUsernameHeaders
	authn.RequestHeader.GroupHeaders = aggregator.RequestheaderGroupHeaders
	authn.RequestHeader.ExtraHeaderPrefixes = aggregator.RequestheaderExtraHeadersPrefix
	authn.RequestHeader.AllowedNames = aggregator.RequestheaderAllowedNames
	if aggregator.RequestheaderClientCAFile != "" {
		authn.RequestHeader.ClientCAFile = aggregator.RequestheaderClientCAFile
		k.ProxyClientCertFile, k.ProxyClientKeyFile = aggregator.ProxyClientCertFile, aggregator.ProxyClientKeyFile
		return nil
	}
	authn.RequestHeader.ClientCAFile = keys.Bundle(pki.RequestHeaderCA)
	k.ProxyClientCertFile, k.ProxyClientKeyFile = keys.Certificate(pki.AuthProxy)
	if len(authn.RequestHeader.AllowedNames) == 0 {
		authn.RequestHeader.AllowedNames = []string{proxyName}
	}
	return nil
}

// admission puts the hub's own plugins before policies and webhooks, which then see what the hub made of an object.
func (o *Options) admission() *genericoptions.AdmissionOptions {
	options := kubeoptions.NewAdmissionOptions().GenericAdmission
	options.DefaultOffPlugins = sets.New(options.RecommendedPluginOrder...).Difference(stockPlugins)
	order := slices.Clone(options.RecommendedPluginOrder)
	for _, plugin := range o.Admission {
		options.Plugins.Register(plugin.Name, func(io.Reader) (admission.Interface, error) { return plugin.Plugin, nil })
		order = slices.Insert(order, slices.Index(order, mutatingadmissionpolicy.PluginName), plugin.Name)
	}
	options.RecommendedPluginOrder = order
	return options
}
