// Package gateway serves ClusterGateways, which pass requests from the API of the hub to those of clusters. They are made of Secrets in one
// namespace. It is part of an API server: the storages are those of a group of its API, under its authentication and authorization.
package gateway

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/gateway/identity"
)

// DefaultNamespace holds the Secrets, unless a flag says otherwise.
const DefaultNamespace = fleet.NamespaceCredentials

const (
	resource         = "clustergateways"
	subresourceProxy = "proxy"
)

// Tunnel connects to addresses as the agent of a cluster knows them.
type Tunnel interface {
	DialCluster(ctx context.Context, cluster, address string) (net.Conn, error)
}

// Options configure a gateway.
type Options struct {
	// Namespace holds the Secrets.
	Namespace string
	// Tunnel reaches clusters that are not dialled directly; nil reaches none of them.
	Tunnel Tunnel
	// PenetrateIdentity impersonates all callers on clusters, not only those who request it.
	PenetrateIdentity bool
	// AuthorizeSubpath also checks whether callers may do on the hub what they want to do on the cluster, for as long as they do it.
	AuthorizeSubpath bool
	// WithoutControlPlane leaves the hub itself out of the VirtualClusters.
	WithoutControlPlane bool
	// Rules say who callers are on clusters, where the rules of the cluster do not; nil says nothing.
	Rules *identity.Exchanger
	// ExecCommands may return credentials. They run with the rights of this process, while others may write the Secrets that name them.
	ExecCommands []string
}

// Gateway serves ClusterGateways once it runs.
type Gateway struct {
	Options
	connections *connections
	probes      *probes
	// running is nil until the API server that the gateway is a part of has started.
	running atomic.Pointer[running]
}

// running is a gateway with a client of its API server.
type running struct {
	client  kubernetes.Interface
	secrets corev1listers.SecretNamespaceLister
	// clusters reads the ManagedClusters of the hub, or the one with a name.
	clusters func(ctx context.Context, name string) ([]clusterv1.ManagedCluster, error)
}

// New returns a Gateway that has yet to Run.
func New(o Options) *Gateway {
	g := &Gateway{Options: o, probes: newProbes()}
	g.connections = newConnections(o.Tunnel, o.ExecCommands)
	return g
}

// NewScheme returns a scheme with the kinds of the group.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(gatewayv1alpha1.AddToScheme(scheme))
	// What the API server has in memory is what it shows.
	internal := schema.GroupVersion{Group: gatewayv1alpha1.GroupVersion.Group, Version: runtime.APIVersionInternal}
	scheme.AddKnownTypes(internal, &gatewayv1alpha1.ClusterGateway{}, &gatewayv1alpha1.ClusterGatewayList{},
		&gatewayv1alpha1.VirtualCluster{}, &gatewayv1alpha1.VirtualClusterList{})
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{},
		&metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme
}

// APIGroup returns the group, of which the authorizer knows who may what on the hub.
func (g *Gateway) APIGroup(scheme *runtime.Scheme, rights authorizer.UnconditionalAuthorizer) *genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(gatewayv1alpha1.GroupVersion.Group, scheme, runtime.NewParameterCodec(scheme),
		serializer.NewCodecFactory(scheme))
	info.VersionedResourcesStorageMap[gatewayv1alpha1.GroupVersion.Version] = map[string]rest.Storage{
		resource:                          &gateways{g},
		resource + "/" + subresourceProxy: &proxy{Gateway: g, authorizer: rights},
		resource + "/health":              &health{g},
		resourceVirtualClusters:           &virtualClusters{Gateway: g, authorizer: rights},
	}
	return &info
}

// Run follows the Secrets through a client of the API server until ctx ends.
func (g *Gateway) Run(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(g.Namespace),
		informers.WithTransform(ctrlcache.TransformStripManagedFields()),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = gatewayv1alpha1.LabelCredentialType }))
	secrets := factory.Core().V1().Secrets()
	if _, err := secrets.Informer().AddEventHandler(g.handler()); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer g.connections.closeAll()
	if !cache.WaitForCacheSync(ctx.Done(), secrets.Informer().HasSynced) {
		return nil
	}
	g.running.Store(&running{client: client, secrets: secrets.Lister().Secrets(g.Namespace),
		clusters: func(ctx context.Context, name string) ([]clusterv1.ManagedCluster, error) {
			return readManagedClusters(ctx, client, name)
		}})
	defer g.running.Store(nil)
	g.probes.open()
	<-ctx.Done()
	return nil
}

// Ready says why requests cannot be answered yet, or any more.
func (g *Gateway) Ready() error {
	_, err := g.backend()
	return err
}

// backend returns what there is to answer requests with.
func (g *Gateway) backend() (*running, error) {
	if r := g.running.Load(); r != nil {
		return r, nil
	}
	const retryAfter = time.Second
	err := apierrors.NewServiceUnavailable("the gateway is starting; try again")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter.Seconds())}
	return nil, err
}

// notFound says what a cluster without a Secret lacks.
func (g *Gateway) notFound(name string) error {
	err := apierrors.NewNotFound(gatewayv1alpha1.GroupVersion.WithResource(resource).GroupResource(), name)
	err.ErrStatus.Message += fmt.Sprintf(": there is no Secret %s/%s with the label %s; enable the add-on cluster-gateway on the cluster, "+
		"or create that Secret", g.Namespace, name, gatewayv1alpha1.LabelCredentialType)
	return err
}
