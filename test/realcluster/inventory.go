package realcluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Inventory has the objects of a cluster, by resource, namespace and name, such as "deployments.apps kube-system/coredns". The value is the
// UID, which tells an object from an earlier one of the same name.
type Inventory map[string]string

// unlisted are resources whose objects come and go by themselves, or follow an object that the inventory has.
var unlisted = []schema.GroupResource{
	{Resource: "componentstatuses"},
	{Resource: "endpoints"}, // of the service of the same name
	{Resource: "events"},
	{Group: "events.k8s.io", Resource: "events"},
	{Group: "networking.k8s.io", Resource: "ipaddresses"}, // of a service
}

var certificateRequests = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}

// Inventory lists the objects of all resources, but not events, and what controllers make of other objects, such as the ReplicaSets and
// pods of a Deployment.
func (c *Cluster) Inventory(t testing.TB) Inventory {
	t.Helper()
	inventory, err := c.inventory(t.Context())
	if err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
	return inventory
}

// AwaitInventory waits until the cluster has what it had when the inventory was made, and nothing else. Kubernetes deletes what a deleted
// object owned, and forgets the resource of a deleted definition, a moment later.
func (c *Cluster) AwaitInventory(t testing.TB, before Inventory) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		now, err := c.inventory(ctx)
		if err != nil {
			return err
		}
		if difference := before.Compare(now); difference != "" {
			return fmt.Errorf("its objects are not those of before:\n%s", difference)
		}
		return nil
	})
}

func (c *Cluster) inventory(ctx context.Context) (Inventory, error) {
	lists, err := c.Clientset.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	all, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	inventory := Inventory{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			kind := version.WithResource(resource.Name)
			if slices.Contains(unlisted, kind.GroupResource()) {
				continue
			}
			objects, err := all.Resource(kind).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // its definition has been deleted since the server named it
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", kind.GroupResource(), err)
			}
			for _, object := range objects.Items {
				if !isDerived(&object) && !isOfKubernetes(kind.GroupResource(), &object) {
					inventory[describeObject(kind.GroupResource(), &object)] = string(object.UID)
				}
			}
		}
	}
	return inventory, nil
}

// isDerived tells whether a controller makes the object of another one that the inventory has.
func isDerived(object *metav1.PartialObjectMetadata) bool {
	_, ofDefinition := object.Labels["kube-aggregator.kubernetes.io/automanaged"] // an APIService of a CustomResourceDefinition
	ofNode := object.Namespace == corev1.NamespaceNodeLease                       // the heartbeat, which may come later than the node
	_, ofServer := object.Labels["apiserver.kubernetes.io/identity"]              // the Lease of an API server, which may start again
	return ofDefinition || ofNode || ofServer || metav1.GetControllerOf(object) != nil
}

// isOfKubernetes tells whether the object is a certificate request of Kubernetes itself, which deletes it after an hour, and not of the
// agent of a cluster.
func isOfKubernetes(resource schema.GroupResource, object *metav1.PartialObjectMetadata) bool {
	_, ofCluster := object.Labels[fleet.LabelClusterName]
	return resource == certificateRequests && !ofCluster
}

func describeObject(resource schema.GroupResource, object *metav1.PartialObjectMetadata) string {
	name := object.Name
	if object.Namespace != corev1.NamespaceAll {
		name = object.Namespace + "/" + name
	}
	return resource.String() + " " + name
}

// Compare says what is different later: a line for each object that was added, removed or replaced. It is empty if nothing is.
func (i Inventory) Compare(later Inventory) string {
	names := maps.Clone(i)
	maps.Copy(names, later)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, was := i[name]
		after, is := later[name]
		switch {
		case !was:
			fmt.Fprintf(&b, "added: %s\n", name)
		case !is:
			fmt.Fprintf(&b, "removed: %s\n", name)
		case before != after:
			fmt.Fprintf(&b, "replaced: %s\n", name)
		}
	}
	return b.String()
}
