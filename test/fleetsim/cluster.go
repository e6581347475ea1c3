// Package fleetsim simulates fleets: in one process, many agents, each with its identity and its connection to a real hub,
// and each next to a managed cluster that is in memory. The agents are the real ones; what they cost in a process of their
// own is not seen here, what they cost the hub is.
//
// Its API server is not internal/cli/fakehub, which stores anything: agents need the rules for versions, generations, status, finalizers
// and watches with bookmarks.
package fleetsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/controlplane/inmemory"
)

// Cluster is the API of a managed cluster, in memory. It serves the built-in kinds that an agent meets and those of
// CustomResourceDefinitions, with what clients rely on: resource versions, watches, generations, status subresources,
// finalizers and partial metadata. Deployments are rolled out at once. Nothing else acts on the objects: no garbage
// collector, no schema, no field managers.
type Cluster struct {
	store *store

	mu     sync.Mutex
	served []kind
}

// The capacity of a cluster's nodes.
const (
	nodes      = 3
	nodeCPU    = "4"
	nodeMemory = "16Gi"
	nodePods   = "110"
)

var gitVersion = version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1"}

// NewCluster returns a cluster with the namespaces default and kube-system, three nodes, and claims that are seen once an
// agent has brought their kind.
func NewCluster(name string) *Cluster {
	c := &Cluster{store: newStore()}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		c.put(schema.GroupVersion{Version: "v1"}.WithKind("Namespace"), "namespaces",
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	for i := range nodes {
		c.put(schema.GroupVersion{Version: "v1"}.WithKind("Node"), "nodes", node(fmt.Sprintf("%s-%d", name, i)))
	}
	for _, claim := range claims(name) {
		c.put(clusterv1alpha1.GroupVersion.WithKind("ClusterClaim"), "clusterclaims", &clusterv1alpha1.ClusterClaim{
			ObjectMeta: metav1.ObjectMeta{Name: claim.Name}, Spec: clusterv1alpha1.ClusterClaimSpec{Value: claim.Value},
		})
	}
	utilruntime.Must(c.serve())
	return c
}

// claims of a cluster, in the order in which an agent reports them.
func claims(cluster string) []clusterv1.ManagedClusterClaim {
	return []clusterv1.ManagedClusterClaim{
		{Name: "id.k8s.io", Value: cluster},
		{Name: "kubeversion.open-cluster-management.io", Value: gitVersion.GitVersion},
		{Name: "platform.open-cluster-management.io", Value: "Simulated"},
		{Name: "region.open-cluster-management.io", Value: "here"},
	}
}

func node(name string) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(nodeCPU),
		corev1.ResourceMemory: resource.MustParse(nodeMemory),
		corev1.ResourcePods:   resource.MustParse(nodePods),
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources}}
}

// put adds an object as it is.
func (c *Cluster) put(gvk schema.GroupVersionKind, plural string, o metav1.Object) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	utilruntime.Must(err)
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(gvk)
	where := key{gvk.GroupVersion().WithResource(plural), types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
	_, err = c.store.write(where, func(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
		fillSystemFields(object)
		return object, nil
	})
	utilruntime.Must(err)
}

// fillSystemFields gives a new object what the API server does.
func fillSystemFields(o *unstructured.Unstructured) {
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.Now())
}

// Config is how clients of the same process reach the cluster.
func (c *Cluster) Config() *rest.Config {
	return &rest.Config{
		Host:          "http://managed-cluster.invalid",
		Transport:     inmemory.NewTransport(c),
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		QPS:           -1,
	}
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// ServeHTTP implements http.Handler.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		writeError(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if !info.IsResourceRequest {
		if !c.discover(w, r.URL.Path) {
			writeError(w, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path))
		}
		return
	}
	kind, known := c.kindOf(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	if !known {
		http.NotFound(w, r) // without a word that a client of Kubernetes understands, as an API server
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	c.answer(w, &call{Request: r, info: info, kind: kind, body: body})
}

func writeJSON(w http.ResponseWriter, code int, content any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(content)
}

// writeError says what a client understands.
func writeError(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus = apierrors.NewInternalError(err)
	_ = errors.As(err, &status)
	answer := status.Status()
	answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	writeJSON(w, int(answer.Code), answer)
}
