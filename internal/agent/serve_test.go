package agent

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
)

// suspendedHub has the cluster c1 and a work of it, which it keeps from agents until it is released.
type suspendedHub struct {
	released atomic.Bool
	once     sync.Once
	// requested is closed when an agent has requested works. Before, it gets no cluster.
	requested chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (h *suspendedHub) RoundTrip(r *http.Request) (*http.Response, error) {
	aboutWorks := strings.HasSuffix(r.URL.Path, "/manifestworks")
	switch {
	case aboutWorks && !h.released.Load():
		h.once.Do(func() { close(h.requested) })
		refused := answer(r, http.StatusServiceUnavailable, body(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":503}`))
		refused.Header.Set("Retry-After", "10")
		return refused, nil
	case r.URL.Query().Get("watch") != "":
		news, end := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = end.CloseWithError(r.Context().Err()) })
		return answer(r, http.StatusOK, news), nil
	case aboutWorks:
		return answer(r, http.StatusOK, body(`{"kind":"ManifestWorkList","apiVersion":"work.open-cluster-management.io/v1",`+
			`"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"c1","name":"work"}}]}`)), nil
	}
	select {
	case <-h.requested:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return answer(r, http.StatusOK, body(`{"kind":"ManagedClusterList","apiVersion":"cluster.open-cluster-management.io/v1",`+
		`"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"c1"}}]}`)), nil
}

func body(content string) io.ReadCloser { return io.NopCloser(strings.NewReader(content)) }

func answer(r *http.Request, code int, content io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: content,
	}
}

// reconciled adds a controller to a manager, and returns the names of what it reconciles.
func reconciled(t *testing.T, mgr ctrl.Manager, name string, from source.Source) <-chan string {
	t.Helper()
	names := make(chan string, 10)
	err := ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).
		WatchesRawSource(from).
		Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			names <- req.Name
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// newManager returns the manager of an agent, with its hub.
func newManager(t *testing.T, a *Agent, hub *hubclient.Cluster, managed http.RoundTripper) ctrl.Manager {
	t.Helper()
	options := a.managerOptions("hash")
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
		return mapper, nil
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://managed.invalid", Transport: managed}, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(hub); err != nil {
		t.Fatal(err)
	}
	return mgr
}

// An agent that starts while a restored hub keeps works from agents waits for them as long as that takes, without beginning its connection
// again, and works meanwhile with what it gets.
func TestWaitsForWhatTheHubKeeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		suspended := &suspendedHub{requested: make(chan struct{})}
		config := &rest.Config{Host: "https://hub.invalid", Transport: suspended}
		a := &Agent{Options: NewOptions(), identity: identity.Identity{Cluster: "c1"}}
		uncached, err := hubclient.New(config)
		if err != nil {
			t.Fatal(err)
		}
		hub, err := hubclient.NewCluster(config, a.hubOptions, hubclient.WorksByName(uncached), func(o *cluster.Options) {
			// The stock handler waits until a millisecond after the last error of the process, by the clock of all tests.
			o.Cache.DefaultWatchErrorHandler = func(context.Context, *toolscache.Reflector, error) {}
		})
		if err != nil {
			t.Fatal(err)
		}
		mgr := newManager(t, a, hub, suspended)
		clusters := reconciled(t, mgr, "clusters", source.Kind(hub.GetCache(), &clusterv1.ManagedCluster{},
			&handler.TypedEnqueueRequestForObject[*clusterv1.ManagedCluster]{}))
		works := reconciled(t, mgr, "works", source.Kind(hub.GetCache(), &workv1.ManifestWork{},
			&handler.TypedEnqueueRequestForObject[*workv1.ManifestWork]{}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		await := func(names <-chan string, want string) {
			t.Helper()
			select {
			case name := <-names:
				if name != want {
					t.Errorf("%s is reconciled, want %s", name, want)
				}
			case err := <-ended:
				t.Fatalf("the connection ended before %s was reconciled: %v", want, err)
			case <-time.After(time.Hour):
				t.Fatalf("%s is not reconciled", want)
			}
		}
		await(clusters, "c1")
		select {
		case err := <-ended:
			t.Fatalf("the connection ended: %v", err)
		case name := <-works:
			t.Fatalf("the work %s is reconciled", name)
		case <-time.After(time.Hour):
		}
		suspended.released.Store(true)
		await(works, "work")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-time.After(5 * time.Minute) // until caches that wait to try the hub again have looked up
	})
}

// earlierHub has the cluster c1. It serves its add-on once it is upgraded.
type earlierHub struct {
	upgraded atomic.Bool
	refused  atomic.Int32 // requests for add-ons
}

// RoundTrip implements http.RoundTripper.
func (h *earlierHub) RoundTrip(r *http.Request) (*http.Response, error) {
	aboutAddOns := strings.HasSuffix(r.URL.Path, "/managedclusteraddons")
	switch {
	case aboutAddOns && !h.upgraded.Load():
		h.refused.Add(1)
		return answer(r, http.StatusNotFound, body("404 page not found")), nil
	case r.URL.Query().Get("watch") != "":
		news, end := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = end.CloseWithError(r.Context().Err()) })
		return answer(r, http.StatusOK, news), nil
	case aboutAddOns:
		return answer(r, http.StatusOK, body(`{"kind":"ManagedClusterAddOnList","apiVersion":"addon.open-cluster-management.io/v1beta1",`+
			`"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"c1","name":"addon"}}]}`)), nil
	}
	return answer(r, http.StatusOK, body(`{"kind":"ManagedClusterList","apiVersion":"cluster.open-cluster-management.io/v1",`+
		`"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"c1"}}]}`)), nil
}

// RG-60: with a hub that does not serve add-ons, an agent does all else, looks for them at long intervals, and has them once the hub is
// upgraded.
func TestHubWithoutAddOns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		earlier := &earlierHub{}
		a := &Agent{Options: NewOptions(), clock: clock.RealClock{}, identity: identity.Identity{Cluster: "c1"}}
		hub, err := hubclient.NewCluster(&rest.Config{Host: "https://hub.invalid", Transport: earlier}, a.hubOptions, a.onWatchErrors(nil),
			hubclient.WorksByName(nil))
		if err != nil {
			t.Fatal(err)
		}
		mgr := newManager(t, a, hub, earlier)
		clusters := reconciled(t, mgr, "clusters", source.Kind(hub.GetCache(), &clusterv1.ManagedCluster{},
			&handler.TypedEnqueueRequestForObject[*clusterv1.ManagedCluster]{}))
		addOns := reconciled(t, mgr, "add-ons", source.Kind(hub.GetCache(), &addonv1beta1.ManagedClusterAddOn{},
			&handler.TypedEnqueueRequestForObject[*addonv1beta1.ManagedClusterAddOn]{}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		if name := <-clusters; name != "c1" {
			t.Errorf("%s is reconciled, want c1", name)
		}
		<-time.After(time.Hour)
		if got, most := int(earlier.refused.Load()), int(time.Hour/unservedRetry); got == 0 || got > most {
			t.Errorf("the hub was asked for add-ons %d times in an hour, want at most %d", got, most)
		}
		earlier.upgraded.Store(true)
		upgraded := time.Now()
		if name := <-addOns; name != "addon" || time.Since(upgraded) > unservedRetry+time.Minute {
			t.Errorf("%s is reconciled %s after the upgrade", name, time.Since(upgraded))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-time.After(5 * time.Minute) // until what the caches have started has ended
	})
}
