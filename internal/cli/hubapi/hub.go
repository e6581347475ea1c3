package hubapi

import (
	"context"
	"fmt"
	"net/http"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/machinery/tcp"
)

// Hub is a hub that commands read and write. Its client has no more kinds than the commands use and does no discovery: that keeps a
// command as fast as its one request.
type Hub struct {
	// Source is where the access was found.
	Source Source
	// Server is the URL of the API server as that kubeconfig has it.
	Server string

	// CA is the certificates to verify the server with, in PEM; empty for those of this machine.
	CA []byte

	clientCertificate []byte // PEM, empty without one

	client  *apiclient.Client
	clients map[schema.GroupVersion]rest.Interface
	reached reached
}

// Connect finds the access to a hub and makes a client of it; nothing is sent yet.
func Connect(target Target) (*Hub, error) {
	config, source, err := target.Resolve()
	if err != nil {
		return nil, err
	}
	if target.As.UserName != "" {
		config.Impersonate = target.As
	}
	hub, err := New(config)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", source, err)
	}
	hub.Source = source
	return hub, nil
}

// New returns the hub that a config leads to.
func New(config *rest.Config) (*Hub, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "capstan"
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	new(tcp.Dialer).Use(config) // a proxy that the kubeconfig names takes its place
	client, err := apiclient.New(config)
	if err != nil {
		return nil, err
	}
	hub := &Hub{
		Server:            config.Host,
		CA:                config.CAData,
		clientCertificate: config.CertData,

		client:  client,
		clients: map[schema.GroupVersion]rest.Interface{},
	}
	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	for _, version := range scheme.PrioritizedVersionsAllGroups() {
		if hub.clients[version], err = newClient(client, version, codecs); err != nil {
			return nil, err
		}
	}
	return hub, nil
}

// newClient returns a client for the kinds of one version.
func newClient(client *apiclient.Client, version schema.GroupVersion, codecs runtime.NegotiatedSerializer) (rest.Interface, error) {
	config := rest.CopyConfig(client.Config)
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &version, "/apis", codecs
	if version.Group == "" {
		config.APIPath = "/api"
	}
	return rest.RESTClientForConfigAndClient(config, client.HTTP)
}

// Objects is a client for objects of any kind.
func (h *Hub) Objects() dynamic.Interface { return h.client.Objects }

// Config is a copy of what the hub is connected by.
func (h *Hub) Config() *rest.Config { return rest.CopyConfig(h.client.Config) }

// Transport sends the requests to the hub.
func (h *Hub) Transport() *http.Client { return h.client.HTTP }

// Raw is a client for any path of the server.
func (h *Hub) Raw() rest.Interface { return h.clients[corev1.SchemeGroupVersion] }

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	kinds := map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion: {&corev1.ConfigMap{}, &corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.Secret{},
			&corev1.SecretList{}, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{}},
		authenticationv1.SchemeGroupVersion: {&authenticationv1.SelfSubjectReview{}, &authenticationv1.TokenRequest{}},
		authorizationv1.SchemeGroupVersion:  {&authorizationv1.SelfSubjectAccessReview{}},
		certificatesv1.SchemeGroupVersion:   {&certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequestList{}},
		coordinationv1.SchemeGroupVersion:   {&coordinationv1.Lease{}, &coordinationv1.LeaseList{}},
		rbacv1.SchemeGroupVersion: {
			&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{},
		},
		clusterv1.GroupVersion: {&clusterv1.ManagedCluster{}, &clusterv1.ManagedClusterList{}},
		clusterv1beta1.GroupVersion: {
			&clusterv1beta1.Placement{}, &clusterv1beta1.PlacementList{}, &clusterv1beta1.PlacementDecisionList{},
		},
		clusterv1beta2.GroupVersion: {
			&clusterv1beta2.ManagedClusterSet{}, &clusterv1beta2.ManagedClusterSetList{},
			&clusterv1beta2.ManagedClusterSetBinding{}, &clusterv1beta2.ManagedClusterSetBindingList{},
		},
		workv1.GroupVersion: {
			&workv1.ManifestWork{}, &workv1.ManifestWorkList{},
			&workv1.AppliedManifestWork{}, &workv1.AppliedManifestWorkList{},
		},
		workv1alpha1.GroupVersion: {&workv1alpha1.ManifestWorkReplicaSet{}},
		// Not every hub serves a later version of the add-on API.
		addonv1alpha1.GroupVersion: {
			&addonv1alpha1.ClusterManagementAddOn{}, &addonv1alpha1.ClusterManagementAddOnList{}, &addonv1alpha1.AddOnTemplate{},
			&addonv1alpha1.ManagedClusterAddOn{}, &addonv1alpha1.ManagedClusterAddOnList{},
		},
	}
	for gv, objects := range kinds {
		scheme.AddKnownTypes(gv, objects...)
		metav1.AddToGroupVersion(scheme, gv)
	}
	return scheme
}

// Ready is nil if the hub says that it is ready.
func (h *Hub) Ready(ctx context.Context) error {
	return h.Raw().Get().AbsPath("/readyz").Do(ctx).Error()
}

// Live is nil if the hub serves its API, ready or not.
func (h *Hub) Live(ctx context.Context) error {
	return h.Raw().Get().AbsPath("/livez").Do(ctx).Error()
}

// CheckIsHub makes sure that there is a hub at the other end.
func (h *Hub) CheckIsHub(ctx context.Context) error {
	err := h.Raw().Get().AbsPath("/apis", clusterv1.GroupVersion.Group, clusterv1.GroupVersion.Version).Do(ctx).Error()
	return h.Explain("look for "+clusterv1.GroupVersion.String(), err)
}
