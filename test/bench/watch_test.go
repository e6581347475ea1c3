//go:build bench

package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// watchFor returns when an object of the name was first seen to be as wanted.
func watchFor(t *testing.T, c client.WithWatch, list client.ObjectList, name string, wanted func(client.Object) bool) <-chan time.Time {
	w, err := c.Watch(t.Context(), list, &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name)})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan time.Time, 1)
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			if o, ok := event.Object.(client.Object); ok && event.Type != watch.Deleted && wanted(o) {
				seen <- time.Now()
				return
			}
		}
	}()
	return seen
}

// creations returns when objects of the name were seen to come to be.
func creations(t *testing.T, c client.WithWatch, list client.ObjectList, name string) <-chan time.Time {
	w, err := c.Watch(t.Context(), list, &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name)})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan time.Time, 1)
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			if event.Type == watch.Added {
				seen <- time.Now()
			}
		}
	}()
	return seen
}

// acceptAtOnce approves and accepts a cluster the moment it asks.
func acceptAtOnce(t *testing.T, c client.WithWatch, cluster string) <-chan struct{} {
	ctx := t.Context()
	requests, err := c.Watch(ctx, &certificatesv1.CertificateSigningRequestList{}, client.MatchingLabels{fleet.LabelClusterName: cluster})
	if err != nil {
		t.Fatal(err)
	}
	cluster1, err := c.Watch(ctx, &clusterv1.ManagedClusterList{},
		&client.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", cluster)})
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		defer requests.Stop()
		if csr, ok := (<-requests.ResultChan()).Object.(*certificatesv1.CertificateSigningRequest); ok {
			if err := env.Approve(ctx, c, csr); err != nil {
				t.Error(err)
			}
		}
	})
	both.Go(func() {
		defer cluster1.Stop()
		if mc, ok := (<-cluster1.ResultChan()).Object.(*clusterv1.ManagedCluster); ok {
			before := mc.DeepCopy()
			mc.Spec.HubAcceptsClient = true
			if err := c.Patch(ctx, mc, client.MergeFrom(before)); err != nil {
				t.Error(err)
			}
		}
	})
	done := make(chan struct{})
	go func() { both.Wait(); close(done) }()
	return done
}

// appliedWorks knows when each work of a cluster was first seen Applied. It is an informer, for under the load of a burst
// the API server ends watches that do not keep up.
type appliedWorks struct {
	cluster string
	mu      sync.Mutex
	waiters map[string]chan time.Time
	seen    map[string]bool
}

func watchWorks(t *testing.T, hub *env.Server, name string) *appliedWorks {
	a := &appliedWorks{cluster: name, waiters: map[string]chan time.Time{}, seen: map[string]bool{}}
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	works, err := cache.New(config, cache.Options{Scheme: env.Scheme(), DefaultNamespaces: map[string]cache.Config{name: {}}})
	if err != nil {
		t.Fatal(err)
	}
	informer, err := works.GetInformer(t.Context(), &workv1.ManifestWork{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    a.see,
		UpdateFunc: func(_, o any) { a.see(o) },
	}); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := works.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if !works.WaitForCacheSync(t.Context()) {
		t.Fatal("the informer of works does not start")
	}
	return a
}

// see is called by the informer, from one goroutine.
func (a *appliedWorks) see(o any) {
	work, ok := o.(*workv1.ManifestWork)
	if ok && !a.seen[work.Name] && conditionTrue(work.Status.Conditions, fleet.ConditionApplied) {
		a.seen[work.Name] = true
		a.waiter(work.Name) <- time.Now()
	}
}

func (a *appliedWorks) waiter(work string) chan time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiters[work] == nil {
		a.waiters[work] = make(chan time.Time, 1)
	}
	return a.waiters[work]
}

func (a *appliedWorks) wait(t *testing.T, work string) time.Time {
	select {
	case at := <-a.waiter(work):
		return at
	case <-time.After(time.Minute):
		t.Fatalf("work %s is not applied after a minute", work)
		return time.Time{}
	}
}

// burst creates works from as many goroutines and returns how long it took until all were applied.
func (a *appliedWorks) burst(t *testing.T, c client.Client, n int) time.Duration {
	begin := time.Now()
	var creating sync.WaitGroup
	for i := range burst {
		creating.Go(func() {
			if err := c.Create(t.Context(), configMapWork(a.cluster, fmt.Sprintf("burst-%d-%d", n, i))); err != nil {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	last := begin
	for i := range burst {
		if at := a.wait(t, fmt.Sprintf("burst-%d-%d", n, i)); at.After(last) {
			last = at
		}
	}
	return last.Sub(begin)
}

func configMapWork(cluster, name string) *workv1.ManifestWork {
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":{"key":"value"}}`, name)
	work := &workv1.ManifestWork{}
	work.Namespace, work.Name = cluster, name
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}}}
	return work
}

func create(t *testing.T, c client.Client, o client.Object) {
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func conditionTrue(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(conditions, kind)
}
