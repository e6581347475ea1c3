// Package installation puts hubs and agents into a cluster that is read and written without a cache, for the command line and for the hub
// that imports clusters: it applies manifests, waits until what they start runs, says why it does not, and takes it out again.
package installation

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/apiclient"
)

// Connection leads to a cluster.
type Connection interface {
	// Objects is a client for objects of any kind.
	Objects() dynamic.Interface
	// Raw is a client for any path of the server.
	Raw() rest.Interface
	// Explain says of a failed request what was being done, and what can be done about it. A nil error stays nil, any other stays
	// in the chain.
	Explain(doing string, err error) error
}

// Cluster is a Kubernetes cluster with nodes that run pods.
type Cluster struct {
	Connection

	// version is that of the program, which CRDs are marked with.
	version string

	mu     sync.Mutex
	served map[schema.GroupVersion][]metav1.APIResource
}

// NewCluster returns the cluster that a connection leads to, for a program of that version.
func NewCluster(connection Connection, version string) *Cluster {
	return &Cluster{Connection: connection, version: version, served: map[schema.GroupVersion][]metav1.APIResource{}}
}

// New returns the cluster that a configuration leads to, by its proxy if it names one, for a program of that version. Nothing is sent yet.
func New(config *rest.Config, version string) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := apiclient.New(config)
	if err != nil {
		return nil, err
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	raw, err := rest.UnversionedRESTClientForConfigAndClient(config, client.HTTP)
	if err != nil {
		return nil, err
	}
	return NewCluster(direct{client.Objects, raw}, version), nil
}

// direct is a connection about which there is no more to say than what failed.
type direct struct {
	objects dynamic.Interface
	raw     rest.Interface
}

func (d direct) Objects() dynamic.Interface { return d.objects }

func (d direct) Raw() rest.Interface { return d.raw }

func (d direct) Explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Version is the version of Kubernetes that the cluster runs, such as v1.30.0.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	body, err := c.Raw().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", c.Explain("ask the cluster for its version", err)
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return "", fmt.Errorf("read the version of the cluster: %w", err)
	}
	return version.GitVersion, nil
}

// errNotServed is why objects of a kind cannot be read or written.
var errNotServed = errors.New("the cluster does not serve it")

// ResourceOf is the resource by which the cluster serves a kind. One that it does not serve is an error.
func (c *Cluster) ResourceOf(ctx context.Context, kind schema.GroupVersionKind) (apiclient.Resource, error) {
	served, err := c.resources(ctx, kind.GroupVersion())
	if err != nil {
		return apiclient.Resource{}, err
	}
	resource, found := apiclient.ResourceOf(kind, served)
	if !found {
		return apiclient.Resource{}, fmt.Errorf("%s of %s: %w", kind.Kind, kind.GroupVersion(), errNotServed)
	}
	return resource, nil
}

// resources are those that the cluster serves of a group and version. What is not served yet is read again the next time.
func (c *Cluster) resources(ctx context.Context, version schema.GroupVersion) ([]metav1.APIResource, error) {
	c.mu.Lock()
	cached := c.served[version]
	c.mu.Unlock()
	if cached != nil {
		return cached, nil
	}
	served, err := apiclient.Resources(ctx, c.Raw(), version)
	if err != nil {
		return nil, c.Explain("ask what the cluster serves of "+version.String(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served[version] = served
	return served, nil
}

// Serves reports whether the cluster serves a version of a group.
func (c *Cluster) Serves(ctx context.Context, version schema.GroupVersion) (bool, error) {
	resources, err := c.resources(ctx, version)
	return len(resources) > 0, err
}

// forget has a group and version read from the cluster again the next time.
func (c *Cluster) forget(version schema.GroupVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.served, version)
}

// client is for the objects of a kind in a namespace, which is ignored where the kind has none.
func (c *Cluster) client(ctx context.Context, kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	resource, err := c.ResourceOf(ctx, kind)
	if err != nil {
		return nil, err
	}
	return resource.Client(c.Objects(), namespace), nil
}

// Reference names an object.
type Reference struct {
	schema.GroupVersionKind
	Namespace, Name string
}

// ReferenceTo is the reference to an object.
func ReferenceTo(object *unstructured.Unstructured) Reference {
	return Reference{object.GroupVersionKind(), object.GetNamespace(), object.GetName()}
}

// String names the object as kubectl users do.
func (r Reference) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Get reads an object; nil without an error if it does not exist, or its kind is not served.
func (c *Cluster) Get(ctx context.Context, of Reference) (*unstructured.Unstructured, error) {
	client, err := c.client(ctx, of.GroupVersionKind, of.Namespace)
	if errors.Is(err, errNotServed) {
		return nil, nil //nolint:nilnil // no object and no error is an answer
	}
	if err != nil {
		return nil, err
	}
	object, err := client.Get(ctx, of.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // no object and no error is an answer
	}
	return object, c.Explain("read "+of.String(), err)
}

// List reads the objects of a kind that a label selector matches, in a namespace or, with an empty one, in all. A kind that is not
// served has none.
func (c *Cluster) List(ctx context.Context, kind schema.GroupVersionKind, namespace, selector string) ([]unstructured.Unstructured, error) {
	client, err := c.client(ctx, kind, namespace)
	if errors.Is(err, errNotServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, c.Explain("list objects of kind "+kind.Kind, err)
	}
	return list.Items, nil
}

// ReferenceOf is the reference to an object of a resource, such as a ClusterManager lists them.
func (c *Cluster) ReferenceOf(ctx context.Context, of schema.GroupVersionResource, namespace, name string) (Reference, error) {
	resources, err := c.resources(ctx, of.GroupVersion())
	if err != nil {
		return Reference{}, err
	}
	for i := range resources {
		if resources[i].Name == of.Resource {
			return Reference{of.GroupVersion().WithKind(resources[i].Kind), namespace, name}, nil
		}
	}
	return Reference{schema.GroupVersionKind{Group: of.Group, Version: of.Version, Kind: of.Resource}, namespace, name}, nil
}
