// Package fakehub is an API server for tests of the command line: it keeps objects as JSON, serves the REST API of
// Kubernetes including watches, and records requests. It checks nothing: that is for tests against a real hub.
//
// It is not the one of test/fleetsim, which keeps the rules that agents need: here, a test stores what it likes, and scripts any answer.
package fakehub

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// Request is a request that the hub got.
type Request struct {
	Method, Path, Authorization, Body string
}

// Hub is a running server. Its objects are found by their URL path, such as /api/v1/namespaces/default/configmaps/x.
type Hub struct {
	*httptest.Server

	mu       sync.Mutex
	changed  *sync.Cond
	objects  map[string]*unstructured.Unstructured
	history  []event
	requests []Request
	handlers map[string]http.HandlerFunc
	watches  map[string]int // ever made, by path
	ended    map[string]int // those of them that have ended
	created  map[string]func(*unstructured.Unstructured)
	replaced map[string]func(*unstructured.Unstructured)

	connected map[string]http.Handler // the APIs of clusters
	written   func()
	conflicts map[string]int  // to come, by request
	ends      map[string]bool // requests before which their object goes
}

// New starts a hub with TLS and stops it when the test ends.
func New(t *testing.T) *Hub {
	t.Helper()
	h := &Hub{objects: map[string]*unstructured.Unstructured{}, handlers: map[string]http.HandlerFunc{}, watches: map[string]int{},
		ended:    map[string]int{},
		created:  map[string]func(*unstructured.Unstructured){},
		replaced: map[string]func(*unstructured.Unstructured){}, connected: map[string]http.Handler{},
		conflicts: map[string]int{}, ends: map[string]bool{}}
	h.changed = sync.NewCond(&h.mu)
	h.Server = httptest.NewTLSServer(h)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.changed.Broadcast()
		h.Close()
	})
	return h
}

// Handle has a handler of the test answer requests such as "GET /readyz".
func (h *Hub) Handle(request string, with http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handlers[request] = with
}

// Conflict makes the hub answer some requests ("DELETE /path") with a conflict, as if somebody else had just changed the object.
func (h *Hub) Conflict(request string, times int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conflicts[request] = times
}

// End makes an object go just before a request ("PATCH /path") for it is answered, as if its controller had taken its last finalizer off.
func (h *Hub) End(request string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[request] = true
}

// OnCreate has a test do what a controller would as soon as an object is created in a collection.
func (h *Hub) OnCreate(collection string, change func(*unstructured.Unstructured)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.created[collection] = change
}

// OnReplace has a test do what a controller would as soon as an object of a collection is replaced.
func (h *Hub) OnReplace(collection string, change func(*unstructured.Unstructured)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaced[collection] = change
}

// OnWrite has a test do something after each request that has changed an object, before that is answered.
func (h *Hub) OnWrite(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = do
}

// Paths are those of all objects, sorted.
func (h *Hub) Paths() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.objects))
}

// Put adds or replaces the object at a path.
func (h *Hub) Put(t *testing.T, objectPath string, object runtime.Object) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.PutLocked(t, objectPath, object)
}

// PutLocked is Put for what a test does while a request is answered, such as by [Hub.OnWrite].
func (h *Hub) PutLocked(t *testing.T, objectPath string, object runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Error(err)
		return
	}
	h.store(objectPath, &unstructured.Unstructured{Object: content})
}

// Remove takes away the object at a path.
func (h *Hub) Remove(t *testing.T, objectPath string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.remove(objectPath) == nil {
		t.Fatalf("the hub has no %s", objectPath)
	}
}

// Has reports whether there is an object at a path.
func (h *Hub) Has(objectPath string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.HasLocked(objectPath)
}

// HasLocked is Has for a handler of the test, while which nothing changes.
func (h *Hub) HasLocked(objectPath string) bool { return h.objects[objectPath] != nil }

// RespondLocked answers with the object at a path, for a handler of the test.
func (h *Hub) RespondLocked(w http.ResponseWriter, objectPath string) {
	h.respond(w, h.objects[objectPath], objectPath)
}

// Get decodes the object at a path.
func (h *Hub) Get(t *testing.T, objectPath string, into any) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	object := h.objects[objectPath]
	if object == nil {
		t.Fatalf("the hub has no %s", objectPath)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		t.Fatal(err)
	}
}

// Requests are all requests so far that have this method.
func (h *Hub) Requests(method string) []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.requests), func(r Request) bool { return r.Method != method })
}

// Watches is how many watches of a collection there have been so far.
func (h *Hub) Watches(collection string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watches[collection]
}

// AwaitWatch returns once a client watches a collection.
func (h *Hub) AwaitWatch(ctx context.Context, collection string) error {
	return h.AwaitWatches(ctx, collection, 1)
}

// AwaitWatches returns once there have been so many watches of a collection.
func (h *Hub) AwaitWatches(ctx context.Context, collection string, number int) error {
	defer context.AfterFunc(ctx, h.wake)()
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.watches[collection] < number && ctx.Err() == nil {
		h.changed.Wait()
	}
	return ctx.Err()
}

// AwaitWatchEnd returns once a client has ended a watch of a collection: it has seen what it watched for.
func (h *Hub) AwaitWatchEnd(ctx context.Context, collection string) error {
	defer context.AfterFunc(ctx, h.wake)()
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.ended[collection] == 0 && ctx.Err() == nil {
		h.changed.Wait()
	}
	return ctx.Err()
}

// wake makes everybody who waits check again.
func (h *Hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed.Broadcast()
}

// Client returns a client of the hub that uses a kubeconfig.
func (h *Hub) Client(t *testing.T) *hubapi.Hub {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	h.Kubeconfig(t, file, "hub")
	hub, err := hubapi.Connect(hubapi.Target{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	return hub
}

// Kubeconfig writes a kubeconfig that leads here with a context of the given name.
func (h *Hub) Kubeconfig(t *testing.T, file, context string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters[context] = &clientcmdapi.Cluster{Server: h.URL, CertificateAuthorityData: h.CA()}
	config.AuthInfos[context] = &clientcmdapi.AuthInfo{Token: "admin"}
	config.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: context}
	config.CurrentContext = context
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
}
