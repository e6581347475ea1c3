package env

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1alpha1 "github.com/capstan-io/capstan/api/about/v1alpha1"
	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	appsv1alpha1 "github.com/capstan-io/capstan/api/apps/v1alpha1"
	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	multiclusterv1alpha2 "github.com/capstan-io/capstan/api/multicluster/v1alpha2"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
)

// Scheme knows the kinds of Kubernetes and those of clusters, their properties, works and add-ons.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(aboutv1alpha1.AddToScheme(s))
	utilruntime.Must(addonv1alpha1.AddToScheme(s))
	utilruntime.Must(addonv1beta1.AddToScheme(s))
	utilruntime.Must(appsv1alpha1.AddToScheme(s))
	utilruntime.Must(appsv1beta1.AddToScheme(s))
	utilruntime.Must(authenticationv1beta1.AddToScheme(s))
	utilruntime.Must(clusterv1.AddToScheme(s))
	utilruntime.Must(clusterv1alpha1.AddToScheme(s))
	utilruntime.Must(clusterv1beta1.AddToScheme(s))
	utilruntime.Must(clusterv1beta2.AddToScheme(s))
	utilruntime.Must(multiclusterv1alpha1.AddToScheme(s))
	utilruntime.Must(multiclusterv1alpha2.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(operatorv1.AddToScheme(s))
	utilruntime.Must(permissionv1alpha1.AddToScheme(s))
	utilruntime.Must(workv1.AddToScheme(s))
	utilruntime.Must(workv1alpha1.AddToScheme(s))
	return s
}

// Client is an administrator's client.
func (s *Server) Client(t testing.TB) client.WithWatch {
	t.Helper()
	config, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	return ClientFor(t, config)
}

// ClientFor is a client under another configuration.
func ClientFor(t testing.TB, config *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
