//go:build bench

package bench

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/fleetsim"
)

var deliveries = flag.Int("deliveries", 1000, "how many placements to deliver to, each to a tenth of the fleet")

const (
	// deliveredAlone is how many of the placements are delivered one after the other, before all others come at once.
	deliveredAlone = 100
	// selectedShare of the clusters is selected by each placement, one in so many.
	selectedShare = 10
	// deliveryTimeout is how long all deliveries may take.
	deliveryTimeout = 30 * time.Minute
)

// TestDeliveries measures how soon a placement of a tenth of the clusters has its decisions, and its ManifestWorkReplicaSet is applied on all
// of them: one placement after the other, then all others at once. Then the hub starts again and decides on all of them anew.
func TestDeliveries(t *testing.T) { measureFleets(t, selectedShare, measureDeliveries) }

func measureDeliveries(t *testing.T, r *report, size int) {
	hub := env.StartHub(t, "", append(fleetsim.HubFlags(), "--profiling")...)
	add := func(name, unit, target string, values ...float64) {
		name = fmt.Sprintf("%d clusters: %s", size, name)
		r.add(name, unit, target, values...)
		t.Logf("%s: %.4g %s", name, r.Measures[len(r.Measures)-1].Median, unit) // a fleet takes minutes
	}
	c := hub.Client(t)
	members := newFleet(t, hubConfig(t, hub), newToken(t, hub), size)
	seen := watchAvailability(t, hubConfig(t, hub))
	members.Start()
	seen.await(t, members.Names(), metav1.ConditionTrue, joinWithin(size))
	create(t, c, &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fleet.ClusterSetGlobal},
		Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: fleet.ClusterSetGlobal}})
	wait(t, settlePeriod)

	d := watchDeliveries(t, hub, size/selectedShare)
	alone := min(deliveredAlone, *deliveries)
	began := map[string]time.Time{}
	for i := range alone {
		began[deliveryName(i)] = time.Now()
		if err := createDelivery(t, c, i, d.each); err != nil {
			t.Fatal(err)
		}
		d.await(t, deliveryName(i))
	}
	add("placement created to decided, one after the other", "ms", "", d.since(began, d.decided)...)
	add("placement created to applied on all of a tenth, one after the other", "ms", "18000", d.since(began, d.delivered)...)
	if *deliveries == alone {
		return
	}

	before, begin := usageOf(t, hub.Pid()), time.Now()
	began = map[string]time.Time{}
	for i := alone; i < *deliveries; i++ {
		began[deliveryName(i)] = begin
	}
	inParallel(t, len(began), func(i int) error { return createDelivery(t, c, alone+i, d.each) })
	for name := range began {
		d.await(t, name)
	}
	took, after, n := time.Since(begin), usageOf(t, hub.Pid()), float64(len(began))
	add("placement created to decided, all others at once", "ms", "", d.since(began, d.decided)...)
	add("placement created to applied on all of a tenth, all others at once", "ms", "", d.since(began, d.delivered)...)
	add("works applied per second, all others at once", "1/s", "", n*float64(d.each)/took.Seconds())
	add("hub CPU, each work", "ms", "", float64((after.cpu-before.cpu).Microseconds())/1000/n/float64(d.each))
	add("hub resident memory with all works", "MB", "", after.rss)
	measureDecidedAgain(t, hub, add)
}

// measureDecidedAgain starts the hub again and times until it has decided on all placements anew.
func measureDecidedAgain(t *testing.T, hub *env.Server, add func(name, unit, target string, values ...float64)) {
	if err := hub.Stop(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	if err := hub.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	add("hub started again to ready", "s", "", time.Since(begin).Seconds())
	awaitDecisions(t, hub, begin)
	add("hub started again to all placements decided again", "s", "570", time.Since(begin).Seconds())
	wait(t, busyPeriod)
	written := 0.0
	for kind, n := range metricsOf(t, hub).byKind {
		part := strings.Split(kind, " ") // verb, resource, subresource, code
		if part[1] == "manifestworks" && !slices.Contains([]string{"GET", "LIST", "WATCH"}, part[0]) {
			written += n
		}
	}
	add("works written after the start", "", "0", written)
}

// awaitDecisions returns when a hub that has started has decided on all placements. That it has decided as often as there are placements
// is not enough, because it may decide on one twice. But it begins when all are in the queue, so that none is left once that is empty, but
// those that wait after a conflict with another writer.
func awaitDecisions(t *testing.T, hub *env.Server, begin time.Time) {
	for {
		now := metricsOf(t, hub)
		if now.decided >= float64(*deliveries) && now.undecided == 0 {
			return
		}
		if time.Since(begin) > deliveryTimeout {
			t.Fatalf("after %s, the hub has decided %.0f times on %d placements, and %.0f wait", deliveryTimeout, now.decided, *deliveries,
				now.undecided)
		}
		wait(t, 100*time.Millisecond)
	}
}

func deliveryName(i int) string { return fmt.Sprintf("delivery-%d", i) }

// createDelivery makes a placement of so many clusters, and the set that follows it.
func createDelivery(t *testing.T, c client.Client, i, clusters int) error {
	object := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: deliveryName(i)}
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: object}
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: object.Name}}
	set.Spec.ManifestWorkTemplate = configMapWork("", object.Name).Spec
	placement := &clusterv1beta1.Placement{ObjectMeta: object, Spec: clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To(int32(clusters))}}
	if err := c.Create(t.Context(), placement); err != nil {
		return err
	}
	return c.Create(t.Context(), set)
}

// deliveryWatch sees when placements have their decisions, and when all works of their sets are applied.
type deliveryWatch struct {
	// each is how many clusters a placement selects.
	each int

	mu                 sync.Mutex
	decided, delivered map[string]time.Time
	applied            map[string]int
	counted            map[client.ObjectKey]bool
	changed            chan struct{}
}

func watchDeliveries(t *testing.T, hub *env.Server, each int) *deliveryWatch {
	d := &deliveryWatch{each: each, decided: map[string]time.Time{}, delivered: map[string]time.Time{}, applied: map[string]int{},
		counted: map[client.ObjectKey]bool{}, changed: make(chan struct{})}
	objects, err := cache.New(hubConfig(t, hub), cache.Options{Scheme: env.Scheme(), DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		t.Fatal(err)
	}
	for o, see := range map[client.Object]func(any){&clusterv1beta1.Placement{}: d.seePlacement, &workv1.ManifestWork{}: d.seeWork} {
		informer, err := objects.GetInformer(t.Context(), o, cache.BlockUntilSynced(false))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: see,
			UpdateFunc: func(_, o any) { see(o) }}); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		if err := objects.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if !objects.WaitForCacheSync(t.Context()) {
		t.Fatal("the informers of placements and works do not start")
	}
	return d
}

func (d *deliveryWatch) seePlacement(o any) {
	p, ok := o.(*clusterv1beta1.Placement)
	if !ok || int(p.Status.NumberOfSelectedClusters) != d.each || !conditionTrue(p.Status.Conditions, fleet.ConditionPlacementSatisfied) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, seen := d.decided[p.Name]; !seen {
		d.decided[p.Name] = time.Now()
		d.notify()
	}
}

func (d *deliveryWatch) seeWork(o any) {
	w, ok := o.(*workv1.ManifestWork)
	if !ok || !isApplied(w) {
		return
	}
	_, set, _ := strings.Cut(w.Labels[fleet.LabelManifestWorkReplicaSet], ".")
	d.mu.Lock()
	defer d.mu.Unlock()
	if set == "" || d.counted[client.ObjectKeyFromObject(w)] {
		return
	}
	d.counted[client.ObjectKeyFromObject(w)] = true
	if d.applied[set]++; d.applied[set] == d.each {
		d.delivered[set] = time.Now()
		d.notify()
	}
}

// notify wakes who awaits something. The lock is held.
func (d *deliveryWatch) notify() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// await returns when the placement has its decisions, and all works of its set are applied.
func (d *deliveryWatch) await(t *testing.T, set string) {
	timeout := time.After(deliveryTimeout)
	for {
		d.mu.Lock()
		_, decided := d.decided[set]
		_, delivered := d.delivered[set]
		changed, applied := d.changed, d.applied[set]
		d.mu.Unlock()
		if decided && delivered {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("after %s, %d of %d works of %s are applied; it is decided: %t", deliveryTimeout, applied, d.each, set, decided)
		}
	}
}

// since is in milliseconds.
func (d *deliveryWatch) since(began, at map[string]time.Time) []float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var took []time.Duration
	for name, begin := range began {
		took = append(took, at[name].Sub(begin))
	}
	return milliseconds(took)
}
