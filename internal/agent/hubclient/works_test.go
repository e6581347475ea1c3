package hubclient

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// RG-17: the agent of a denied cluster, which may not list and watch works any more, still learns that one that it knows was changed or
// deleted, and nothing of new ones. When the cluster is accepted again, it learns of all.
func TestWorksByName(t *testing.T) {
	t.Parallel()
	work := func(name, value string) *workv1.ManifestWork {
		return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, Labels: map[string]string{"value": value}}}
	}
	hub := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(work("changed", "1"), work("deleted", "1")).Build()
	var denied atomic.Bool
	watches := make(chan *watch.FakeWatcher, 100)
	forbidden := func() error {
		if !denied.Load() {
			return nil
		}
		return apierrors.NewForbidden(workv1.GroupVersion.WithResource("manifestworks").GroupResource(), "", nil)
	}
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			list := &workv1.ManifestWorkList{}
			if err := forbidden(); err != nil {
				return nil, err
			}
			return list, hub.List(ctx, list, client.InNamespace("c1"))
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if err := forbidden(); err != nil {
				return nil, err
			}
			if options.SendInitialEvents != nil {
				return nil, errors.New("a watch does not begin with a list here")
			}
			w := watch.NewFake()
			watches <- w
			return w, nil
		},
	}
	options := &cluster.Options{}
	WorksByName(hub)(options)
	informer := options.Cache.NewInformer(lw, &workv1.ManifestWork{}, 0, toolscache.Indexers{})
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	defer func() { stop(); <-ended }()
	expect := func(want ...string) {
		t.Helper()
		var have []string
		deadline := time.After(time.Minute)
		for ticks := time.NewTicker(10 * time.Millisecond); ; {
			have = nil
			for _, o := range informer.GetStore().List() {
				w, _ := o.(*workv1.ManifestWork)
				have = append(have, w.Name+" "+w.Labels["value"])
			}
			if slices.Sort(have); slices.Equal(have, want) {
				ticks.Stop()
				return
			}
			select {
			case <-ticks.C:
			case <-deadline:
				t.Fatalf("the cache has %v, want %v", have, want)
			}
		}
	}
	expect("changed 1", "deleted 1")

	denied.Store(true)
	changed := &workv1.ManifestWork{}
	if err := hub.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: "changed"}, changed); err != nil {
		t.Fatal(err)
	}
	changed.Labels["value"] = "2"
	err := errors.Join(hub.Update(t.Context(), changed), hub.Delete(t.Context(), work("deleted", "")),
		hub.Create(t.Context(), work("new", "1")))
	if err != nil {
		t.Fatal(err)
	}
	end := <-watches
	end.Stop() // as the hub ends a watch that is not allowed any more
	expect("changed 2")

	denied.Store(false)
	expect("changed 2", "new 1")
}

// RG-17: whatever a proxy in front of the hub answers, no work that the agent knows counts as deleted.
func TestWorksBehindProxy(t *testing.T) {
	t.Parallel()
	resource := workv1.GroupVersion.WithResource("manifestworks").GroupResource()
	ofProxy := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", resource, "", "<html>", 0, true)
	}
	ofHub := apierrors.NewForbidden(resource, "", nil)
	for name, test := range map[string]struct {
		list, get error
		byName    bool
	}{
		"forbids all":                      {ofProxy(http.StatusForbidden), ofHub, false},
		"knows nothing":                    {ofProxy(http.StatusNotFound), ofHub, false},
		"knows nothing after the hub said": {ofHub, ofProxy(http.StatusNotFound), true},
	} {
		known := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
		if err := known.Add(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "work"}}); err != nil {
			t.Fatal(err)
		}
		hub := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return test.get
			},
		}).Build()
		works := &worksByName{hub: hub, known: known, ListerWatcherWithContext: &toolscache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, test.list },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, test.list },
		}}
		if list, err := works.list(t.Context(), metav1.ListOptions{}); err == nil {
			t.Errorf("%s: the list is %v", name, list)
		}
		if _, err := works.watch(t.Context(), metav1.ListOptions{}); apierrors.IsResourceExpired(err) != test.byName {
			t.Errorf("%s: the watch fails with %v", name, err)
		}
	}
}
