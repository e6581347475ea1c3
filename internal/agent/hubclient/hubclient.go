// Package hubclient knows the few kinds that an agent uses on the hub, so that it needs no discovery.
package hubclient

import (
	"net/http"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Scheme holds the kinds.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, authorizationv1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme,
		authenticationv1.AddToScheme, authenticationv1beta1.AddToScheme, addonv1beta1.AddToScheme, clusterv1.AddToScheme, workv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Mapper maps the kinds to their resources without discovery.
func Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	add := func(gv schema.GroupVersion, kind string, scope meta.RESTScope) { mapper.Add(gv.WithKind(kind), scope) }
	add(authorizationv1.SchemeGroupVersion, "SelfSubjectAccessReview", meta.RESTScopeRoot)
	add(certificatesv1.SchemeGroupVersion, "CertificateSigningRequest", meta.RESTScopeRoot)
	add(coordinationv1.SchemeGroupVersion, "Lease", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "ConfigMap", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "Secret", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "ServiceAccount", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "Event", meta.RESTScopeNamespace)
	add(eventsv1.SchemeGroupVersion, "Event", meta.RESTScopeNamespace)
	add(addonv1beta1.GroupVersion, "ManagedClusterAddOn", meta.RESTScopeNamespace)
	add(authenticationv1beta1.GroupVersion, "ManagedServiceAccount", meta.RESTScopeNamespace)
	add(clusterv1.GroupVersion, "ManagedCluster", meta.RESTScopeRoot)
	add(workv1.GroupVersion, "ManifestWork", meta.RESTScopeNamespace)
	return mapper
}

// known are the kinds of all clients. Nothing is added to them.
var known = sync.OnceValue(Scheme)

// New returns a client that reads and writes the hub directly.
func New(config *rest.Config) (client.WithWatch, error) { return NewOver(nil, config) }

// NewOver returns the same client over the connections of a transport, which NewCluster may share with it; nil makes one of its own.
func NewOver(transport *http.Client, config *rest.Config) (client.WithWatch, error) {
	return client.NewWithWatch(config, client.Options{HTTPClient: transport, Scheme: known(), Mapper: Mapper()})
}

// MapperProvider gives Mapper to a cluster.
func MapperProvider(*rest.Config, *http.Client) (meta.RESTMapper, error) { return Mapper(), nil }
