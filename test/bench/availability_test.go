//go:build bench

package bench

import (
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// availability is what the hub says of its clusters, and since when.
type availability struct {
	mu       sync.Mutex
	clusters map[string]seen
	changed  chan struct{}
	awaited  map[string]bool // of these, a change is no surprise
	surprise []string
}

type seen struct {
	status metav1.ConditionStatus
	at     time.Time
}

func watchAvailability(t *testing.T, hub *rest.Config) *availability {
	a := &availability{clusters: map[string]seen{}, changed: make(chan struct{}), awaited: map[string]bool{}}
	clusters, err := cache.New(hub, cache.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	informer, err := clusters.GetInformer(t.Context(), &clusterv1.ManagedCluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: a.see,
		UpdateFunc: func(_, o any) { a.see(o) }}); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := clusters.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if !clusters.WaitForCacheSync(t.Context()) {
		t.Fatal("the informer of clusters does not start")
	}
	return a
}

// see is called by the informer.
func (a *availability) see(o any) {
	mc, ok := o.(*clusterv1.ManagedCluster)
	if !ok {
		return
	}
	cond := meta.FindStatusCondition(mc.Status.Conditions, fleet.ConditionClusterAvailable)
	if cond == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clusters[mc.Name].status == cond.Status {
		return
	}
	if !a.awaited[mc.Name] {
		a.surprise = append(a.surprise, mc.Name+" is "+string(cond.Status))
	}
	a.clusters[mc.Name] = seen{cond.Status, time.Now()}
	close(a.changed)
	a.changed = make(chan struct{})
}

// await returns when each of the clusters was seen to come to the status in which all are now.
func (a *availability) await(t *testing.T, clusters []string, status metav1.ConditionStatus, timeout time.Duration) []time.Time {
	a.expect(clusters, true)
	defer a.expect(clusters, false)
	deadline := time.After(timeout)
	for {
		times, missing, changed := a.times(clusters, status)
		if missing == 0 {
			return times
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("after %s, %d of %d clusters are not Available=%s", timeout, missing, len(clusters), status)
		}
	}
}

func (a *availability) expect(clusters []string, change bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range clusters {
		a.awaited[name] = change
	}
}

func (a *availability) times(clusters []string, status metav1.ConditionStatus) (times []time.Time, missing int, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range clusters {
		if c := a.clusters[name]; c.status == status {
			times = append(times, c.at)
		} else {
			missing++
		}
	}
	return times, missing, a.changed
}

// check fails the test if a cluster was taken for lost that was not, or the other way round.
func (a *availability) check(t *testing.T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.surprise) > 0 {
		t.Errorf("%d changes of availability for no reason, such as %q", len(a.surprise), a.surprise[:min(len(a.surprise), 10)])
	}
}
