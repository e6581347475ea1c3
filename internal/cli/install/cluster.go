// Package install is what the command line does to a cluster that a hub or an agent runs in: it applies manifests, waits until what
// they start runs, says why it does not, and takes it out again.
package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// Cluster is a Kubernetes cluster with nodes that run pods.
type Cluster struct {
	hub *hubapi.Hub

	mu     sync.Mutex
	served map[schema.GroupVersion][]metav1.APIResource
}

// Connect finds the access to a cluster and prepares to use it; nothing is sent yet.
func Connect(target hubapi.Target) (*Cluster, error) {
	hub, err := hubapi.Connect(target)
	if err != nil {
		return nil, err
	}
	return In(hub), nil
}

// In returns the cluster that a hub is, or that a client of package hubapi leads to.
func In(hub *hubapi.Hub) *Cluster {
	return &Cluster{hub: hub, served: map[schema.GroupVersion][]metav1.APIResource{}}
}

// Server is the URL of the cluster's API server.
func (c *Cluster) Server() string { return c.hub.Server }

// Source is where the access to the cluster was found.
func (c *Cluster) Source() hubapi.Source { return c.hub.Source }

// Hub is the client for what a hub serves in this cluster.
func (c *Cluster) Hub() *hubapi.Hub { return c.hub }

// Version is the version of Kubernetes that the cluster runs, such as v1.30.0.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	body, err := c.hub.Raw().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", c.hub.Explain("ask the cluster for its version", err)
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return "", fmt.Errorf("read the version of %s: %w", c.Server(), err)
	}
	return version.GitVersion, nil
}

// errNotServed is why objects of a kind cannot be read or written.
var errNotServed = errors.New("the cluster does not serve it")

// resourceOf asks the cluster how it serves a kind. The error is errNotServed for one that it does not serve.
func (c *Cluster) resourceOf(ctx context.Context, kind schema.GroupVersionKind) (hubapi.Resource, error) {
	resources, err := c.resources(ctx, kind.GroupVersion())
	if err != nil {
		return hubapi.Resource{}, err
	}
	for i := range resources {
		if served := &resources[i]; served.Kind == kind.Kind && !strings.Contains(served.Name, "/") {
			return hubapi.Resource{GroupVersionResource: kind.GroupVersion().WithResource(served.Name), Namespaced: served.Namespaced}, nil
		}
	}
	return hubapi.Resource{}, fmt.Errorf("%s of %s: %w", kind.Kind, kind.GroupVersion(), errNotServed)
}

// resources are those that the cluster serves of a group and version. What is not served yet is asked for again the next time.
func (c *Cluster) resources(ctx context.Context, version schema.GroupVersion) ([]metav1.APIResource, error) {
	c.mu.Lock()
	known := c.served[version]
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	path := []string{"/apis", version.Group, version.Version}
	if version.Group == "" {
		path = []string{"/api", version.Version}
	}
	body, err := c.hub.Raw().Get().AbsPath(path...).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, c.hub.Explain("ask what the cluster serves of "+version.String(), err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("read what the cluster serves of %s: %w", version, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served[version] = list.APIResources
	return list.APIResources, nil
}

// forget makes the next question about a group and version go to the cluster again.
func (c *Cluster) forget(version schema.GroupVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.served, version)
}

// client is for the objects of a kind in a namespace, which is ignored where the kind has none.
func (c *Cluster) client(ctx context.Context, kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	resource, err := c.resourceOf(ctx, kind)
	if err != nil {
		return nil, err
	}
	all := c.hub.Objects().Resource(resource.GroupVersionResource)
	if resource.Namespaced {
		return all.Namespace(namespace), nil
	}
	return all, nil
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
	return object, c.hub.Explain("read "+of.String(), err)
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
		return nil, c.hub.Explain("list objects of kind "+kind.Kind, err)
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
