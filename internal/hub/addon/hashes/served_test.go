package hashes_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/hashes"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
)

// resources is how discovery returns a kind.
func resources(kind schema.GroupVersionKind) *metav1.APIResourceList {
	plural, singular := meta.UnsafeGuessKindToResource(kind)
	return &metav1.APIResourceList{GroupVersion: kind.GroupVersion().String(), APIResources: []metav1.APIResource{{
		Name: plural.Resource, SingularName: singular.Resource, Kind: kind.Kind, Namespaced: true,
	}}}
}

var thing = configOf("example.com", "things", "one")

// hub serves things.example.com in a version that changes, or in none, and others.example.com in v1. In each version, a thing has another
// hash.
type hub struct {
	discovery.DiscoveryInterfaceWithContext
	*hashes.Hashes
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu               sync.Mutex
	served, declared string
	watches          []*watch.FakeWatcher
}

// newHub has an add-on that wants the thing.
func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	lists := map[schema.GroupVersionResource]string{}
	for _, version := range []string{"v1", "v1alpha1"} {
		lists[schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "things"}] = "ThingList"
	}
	c := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	c.PrependReactor("list", "things", h.list)
	c.PrependWatchReactor("things", h.watch)
	h.Hashes = hashes.New(c, h, clock.RealClock{})
	ctx, stop := context.WithCancel(t.Context())
	giveUp := time.AfterFunc(time.Hour, h.queue.ShutDown)
	t.Cleanup(func() {
		giveUp.Stop()
		stop()
		h.queue.ShutDown()
		h.end()
		synctest.Wait()
	})
	if err := h.Source().Start(ctx, h.queue); err != nil {
		t.Fatal(err)
	}
	h.Require("hello", map[addonv1beta1.AddOnConfig]bool{thing: true})
	return h
}

// serve changes the version that is served. Whoever watches gets no more events.
func (h *hub) serve(version string) {
	h.serveUndeclared(version)
	h.declare(version)
	h.DefinitionChanged("things.example.com")
	h.end()
}

func (h *hub) serveUndeclared(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.served = version
}

// declare changes what discovery says.
func (h *hub) declare(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.declared = version
}

func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watches {
		w.Stop()
	}
	h.watches = nil
}

func (h *hub) list(a clienttesting.Action) (bool, runtime.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.GetResource().Version != h.served {
		return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	}
	list := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*inVersion(h.served)}}
	list.SetResourceVersion("1")
	return true, list, nil
}

func (h *hub) watch(a clienttesting.Action) (bool, watch.Interface, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.GetResource().Version != h.served {
		return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	}
	w := watch.NewFake()
	h.watches = append(h.watches, w)
	return true, w, nil
}

func (h *hub) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	declared := fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
	declared.Resources = []*metav1.APIResourceList{resources(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Other"})}
	switch h.declared {
	case "":
	case "v1":
		more := resources(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
		declared.Resources[0].APIResources = append(declared.Resources[0].APIResources, more.APIResources...)
	default:
		declared.Resources = append(declared.Resources,
			resources(schema.GroupVersionKind{Group: "example.com", Version: h.declared, Kind: "Thing"}))
	}
	return declared.ServerGroupsAndResourcesWithContext(ctx)
}

func inVersion(version string) *unstructured.Unstructured {
	o := object("example.com", "Thing", "one")
	o.SetAPIVersion("example.com/" + version)
	o.SetResourceVersion("1")
	o.Object["spec"] = map[string]any{"version": version}
	return o
}

// expect is what Of says, at the latest when it has enqueued for the last time: a hash of a version, or an error.
func (h *hub) expect(t *testing.T, version, problem string) {
	t.Helper()
	want := ""
	if version != "" {
		var err error
		if want, err = config.Hash(inVersion(version)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		got, err := h.Of(thing)
		if err == nil && got.Hash == want || err != nil && problem != "" && strings.Contains(err.Error(), problem) {
			return
		}
		request, over := h.queue.Get()
		if over {
			t.Fatalf("got %+v, %v forever, want the hash in version %q, or %q", got, err, version, problem)
		}
		h.queue.Done(request)
	}
}

// AM-06, AM-08: which versions of a kind the hub serves changes while it runs.
func TestServedOtherwise(t *testing.T) {
	t.Parallel()
	const notServed = "the hub serves no things.example.com: install"
	for name, test := range map[string]func(*testing.T, *hub){
		"installed in another version of a known group": func(t *testing.T, h *hub) {
			h.serve("")
			h.expect(t, "", notServed)
			h.serve("v1alpha1")
			h.expect(t, "v1alpha1", "")
		},
		"deleted, and back in another version": func(t *testing.T, h *hub) {
			h.serve("v1alpha1")
			h.expect(t, "v1alpha1", "")
			h.serve("")
			h.expect(t, "", notServed)
			h.serve("v1")
			h.expect(t, "v1", "")
		},
		"not in the watched version any more": func(t *testing.T, h *hub) {
			h.serve("v1alpha1")
			h.expect(t, "v1alpha1", "")
			h.serve("v1")
			h.expect(t, "v1", "")
		},
		"told of before discovery knows": func(t *testing.T, h *hub) {
			h.serve("v1alpha1")
			h.expect(t, "v1alpha1", "")
			h.serveUndeclared("v1")
			h.DefinitionChanged("things.example.com")
			h.end()
			h.expect(t, "", notServed)
			h.declare("v1")
			h.expect(t, "v1", "")
		},
		"declared before it is served": func(t *testing.T, h *hub) {
			h.declare("v1")
			h.expect(t, "", notServed)
			h.serveUndeclared("v1")
			h.expect(t, "v1", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newHub(t)) })
		})
	}
}
