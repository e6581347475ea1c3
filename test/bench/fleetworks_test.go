//go:build bench

package bench

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/fleetsim"
)

// The performance tool of the original gives each cluster five works, too.
var worksEach = flag.Int("works", 5, "how many works each cluster gets")

const (
	// plainWrites is how many works at most a client writes to find out at which rate it can.
	plainWrites = 5000
	// rounds is how often drift and feedback are measured, each time on another cluster.
	rounds = 200
	// unmanagedNamespaces hold works that no agent sees.
	unmanagedNamespaces = 16
)

// What a hub may have of memory, in MB, with fleets of so many clusters and so many works each.
var worksMemoryTargets = map[[2]int]string{{10_000, 5}: "3072", {3000, 100}: "8192"}

// TestFleetWorks measures works in simulated fleets of several sizes. Next to what the fleet takes stands what the same API
// server takes of the same writes, sent by as many clients as the hub has writers, with no agent to learn of them.
func TestFleetWorks(t *testing.T) {
	if *worksEach < 1 {
		t.Fatalf("-works %d is no number of works; use one from 1", *worksEach)
	}
	measureFleets(t, 1, measureFleetWorks)
}

// workBench is a fleet and its hub.
type workBench struct {
	t     *testing.T
	r     *report
	hub   *env.Server
	c     client.WithWatch
	size  int
	fleet fleetsim.Fleet
	works workWatch
	plain plainRates
}

func measureFleetWorks(t *testing.T, r *report, size int) {
	hub := env.StartHub(t, "", append(fleetsim.HubFlags(), "--profiling")...)
	b := &workBench{t: t, r: r, hub: hub, c: hub.Client(t), size: size}
	plain := min(*worksEach*size, plainWrites)
	b.measurePlainWrites("on an empty hub", plain)
	b.fleet = newFleet(t, hubConfig(t, hub), newToken(t, hub), size)
	seen := watchAvailability(t, hubConfig(t, hub))
	b.fleet.Start()
	seen.await(t, b.fleet.Names(), metav1.ConditionTrue, joinWithin(size))
	wait(t, settlePeriod)
	// The fleet is there, with what the hub holds of it, and nothing else happens.
	b.plain = b.measurePlainWrites("next to the fleet", plain)
	b.works = watchAllWorks(t, hub)
	b.measureWorks()
	wait(t, settlePeriod)
	b.add(fmt.Sprintf("%d works each: hub resident memory", *worksEach), "MB", worksMemoryTargets[[2]int{size, *worksEach}],
		usageOf(t, hub.Pid()).rss)
	if *light {
		t.Log("without drift and feedback: light agents apply no objects to a cluster")
	} else {
		b.measureDrift()
		b.measureFeedback()
	}
	b.measureWorksDeletion()
	b.measureSet()
}

func (b *workBench) add(name, unit, target string, values ...float64) {
	name = fmt.Sprintf("%d clusters: %s", b.size, name)
	b.r.add(name, unit, target, values...)
	b.t.Logf("%s: %.4g %s", name, b.r.Measures[len(b.r.Measures)-1].Median, unit) // a fleet takes minutes
}

// plainRates are what the API server takes by itself, in writes per second.
type plainRates struct{ create, patch, status float64 }

// measurePlainWrites writes works as a fan-out does, one kind of write after the other: their creation, the finalizer and the
// status of an agent.
func (b *workBench) measurePlainWrites(when string, n int) (rates plainRates) {
	works := make([]*workv1.ManifestWork, n)
	inParallel(b.t, unmanagedNamespaces, func(i int) error {
		return client.IgnoreAlreadyExists(b.c.Create(b.t.Context(), newNamespace(fmt.Sprintf("plain-%d", i))))
	})
	for i := range works {
		works[i] = configMapWork(fmt.Sprintf("plain-%d", i%unmanagedNamespaces), fmt.Sprintf("plain-%d", i))
	}
	hub, began := usageOf(b.t, b.hub.Pid()), time.Now()
	rate := func(what string, write func(*workv1.ManifestWork) error) float64 {
		begin := time.Now()
		atOnce(b.t, works, write)
		perSecond := float64(n) / time.Since(begin).Seconds()
		b.add(fmt.Sprintf("plain %s, %s", what, when), "1/s", "", perSecond)
		return perSecond
	}
	rates.create = rate("creations", func(w *workv1.ManifestWork) error { return b.c.Create(b.t.Context(), w) })
	rates.patch = rate("patches of finalizers", func(w *workv1.ManifestWork) error {
		content := fmt.Appendf(nil, `{"metadata":{"finalizers":[%q],"resourceVersion":%q}}`, fleet.FinalizerManifestWorkCleanup,
			w.ResourceVersion)
		return b.c.Patch(b.t.Context(), w, client.RawPatch(types.MergePatchType, content))
	})
	rates.status = rate("updates of status", func(w *workv1.ManifestWork) error {
		w.Status = reportedStatus(w)
		return b.c.Status().Update(b.t.Context(), w)
	})
	b.addCPU("plain writes, "+when, float64(3*n), hub, time.Since(began))
	atOnce(b.t, works, func(w *workv1.ManifestWork) error {
		w.Finalizers = nil
		return errors.Join(b.c.Update(b.t.Context(), w), b.c.Delete(b.t.Context(), w))
	})
	return rates
}

// addCPU is what counts on a machine that others use as well.
func (b *workBench) addCPU(what string, writes float64, before usage, took time.Duration) {
	spent := usageOf(b.t, b.hub.Pid()).cpu - before.cpu
	b.add(what+": CPU of the hub", "cores", "", spent.Seconds()/took.Seconds())
	b.add(what+": CPU of the hub, each write", "ms", "", float64(spent.Microseconds())/1000/writes)
}

// reportedStatus is as large as what an agent reports.
func reportedStatus(w *workv1.ManifestWork) workv1.ManifestWorkStatus {
	var status workv1.ManifestWorkStatus
	object := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps",
		Name: w.Name, Namespace: "default"}}
	for _, kind := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
		cond := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: fleet.ReasonAppliedManifestComplete,
			Message: "Apply manifest complete", ObservedGeneration: w.Generation}
		meta.SetStatusCondition(&status.Conditions, cond)
		meta.SetStatusCondition(&object.Conditions, cond)
	}
	status.ResourceStatus.Manifests = []workv1.ManifestCondition{object}
	return status
}

// phase measures what the hub does until a tally is complete. share is the target for the rate of its writes.
func (b *workBench) phase(what, share string, begin func() *tally) *tally {
	stopProfile := profile(b.t, b.hub, b.size, strings.ReplaceAll(what, " ", "-"))
	hub, self, counted, began := usageOf(b.t, b.hub.Pid()), usageOf(b.t, os.Getpid()), metricsOf(b.t, b.hub), time.Now()
	c := begin()
	took := c.await(b.t).Sub(began)
	selfNow, now := usageOf(b.t, os.Getpid()), metricsOf(b.t, b.hub)
	logBusiest(b.t, what, now, counted, 1)
	writes, alone := b.worksWritten(now, counted)
	b.add(what, "s", "", took.Seconds())
	b.add(what+": writes of works", "1/s", "", writes/took.Seconds())
	b.add(what+": of the rate of plain writes", "%", share, 100*alone/took.Seconds())
	b.addCPU(what, writes, hub, took)
	b.add(what+": CPU of the simulator", "cores", "", (selfNow.cpu-self.cpu).Seconds()/took.Seconds())
	stopProfile()
	return c
}

// worksWritten is how many writes of works there were, and how many seconds the same would have taken as plain writes.
func (b *workBench) worksWritten(now, before metrics) (writes, alone float64) {
	for kind, n := range now.byKind {
		part := strings.Split(kind, " ") // verb, resource, subresource, code
		n -= before.byKind[kind]
		if part[1] != "manifestworks" {
			continue
		}
		switch {
		case part[0] == "POST":
			alone += n / b.plain.create
		case part[2] == "status":
			alone += n / b.plain.status
		case part[0] == "PATCH", part[0] == "PUT", part[0] == "APPLY":
			alone += n / b.plain.patch
		default:
			continue
		}
		writes += n
	}
	return writes, alone
}

// measureWorks creates works for all clusters and times each until the hub says Applied.
func (b *workBench) measureWorks() {
	var mu sync.Mutex
	began := map[client.ObjectKey]time.Time{}
	applied := b.phase(fmt.Sprintf("%d works created to all Applied", *worksEach*b.size), "", func() *tally {
		applied := b.works.count(b.t, "Applied", *worksEach*b.size, isApplied)
		var works []*workv1.ManifestWork
		for i := range *worksEach {
			for _, cluster := range b.fleet.Names() {
				works = append(works, configMapWork(cluster, fmt.Sprintf("work-%d", i)))
			}
		}
		begin := time.Now()
		atOnce(b.t, works, func(w *workv1.ManifestWork) error {
			mu.Lock()
			began[client.ObjectKeyFromObject(w)] = time.Now()
			mu.Unlock()
			return b.c.Create(b.t.Context(), w)
		})
		b.add("works created", "1/s", "", float64(len(works))/time.Since(begin).Seconds())
		return applied
	})
	var took []time.Duration
	for work, at := range applied.at {
		took = append(took, at.Sub(began[work]))
	}
	b.add("work created to Applied, each of those", "ms", "", milliseconds(took)...)
}

// measureDrift times how long a deleted object stays away.
func (b *workBench) measureDrift() {
	var took []time.Duration
	for i := range rounds {
		c := env.ClientFor(b.t, b.fleet[i*len(b.fleet)/rounds].Cluster.Config())
		name := fmt.Sprintf("work-%d", i%*worksEach) // in a small fleet, another object of a cluster in each round
		created := creations(b.t, c, &corev1.ConfigMapList{}, name)
		<-created
		begin := time.Now()
		if err := c.Delete(b.t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}); err != nil {
			b.t.Fatal(err)
		}
		took = append(took, (<-created).Sub(begin))
	}
	b.add("deleted object is back", "ms", "200", milliseconds(took)...)
}

// measureFeedback times how long after a Deployment has become available on its cluster the hub knows, without any rule. Deployments of the
// simulator are available at once, so each is made unavailable first.
func (b *workBench) measureFeedback() {
	var took []time.Duration
	for i := range rounds {
		member := b.fleet[i*len(b.fleet)/rounds]
		name := fmt.Sprintf("feedback-%d", i)
		progressing := func(status metav1.ConditionStatus) <-chan time.Time {
			return watchFor(b.t, b.c, &workv1.ManifestWorkList{}, name, func(o client.Object) bool {
				return meta.IsStatusConditionPresentAndEqual(o.(*workv1.ManifestWork).Status.Conditions, fleet.ConditionProgressing, status)
			})
		}
		rolledOut := progressing(metav1.ConditionFalse)
		create(b.t, b.c, workOf(member.Name, name, deploymentManifest(name)))
		<-rolledOut
		cluster := env.ClientFor(b.t, member.Cluster.Config())
		unavailable := progressing(metav1.ConditionTrue)
		b.setAvailable(cluster, name, 0)
		<-unavailable
		known := progressing(metav1.ConditionFalse)
		begin := b.setAvailable(cluster, name, 1)
		took = append(took, (<-known).Sub(begin))
	}
	b.add("Deployment available on its cluster, known on the hub", "ms", "15", milliseconds(took)...)
}

// setAvailable says of a Deployment of one replica how many are available, and returns when it began to.
func (b *workBench) setAvailable(cluster client.Client, name string, available int32) time.Time {
	b.t.Helper()
	deployment := &appsv1.Deployment{}
	if err := cluster.Get(b.t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, deployment); err != nil {
		b.t.Fatal(err)
	}
	deployment.Status.AvailableReplicas, deployment.Status.ReadyReplicas = available, available
	begin := time.Now()
	if err := cluster.Status().Update(b.t.Context(), deployment); err != nil {
		b.t.Fatal(err)
	}
	return begin
}

func (b *workBench) measureWorksDeletion() {
	all := b.listWorks()
	b.phase(fmt.Sprintf("%d works deleted to all gone", len(all)), "", func() *tally {
		gone := b.works.countGone(b.t, len(all))
		atOnce(b.t, all, func(w *workv1.ManifestWork) error { return b.c.Delete(b.t.Context(), w) })
		return gone
	})
}

// listWorks returns all works, of which it knows the names, in pages: hundreds of thousands are too much for one answer.
func (b *workBench) listWorks() (all []*workv1.ManifestWork) {
	const pageSize = 5000
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWorkList"))
	for {
		if err := b.c.List(b.t.Context(), page, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			b.t.Fatal(err)
		}
		for i := range page.Items {
			all = append(all, &workv1.ManifestWork{
				ObjectMeta: metav1.ObjectMeta{Namespace: page.Items[i].Namespace, Name: page.Items[i].Name}})
		}
		if page.Continue == "" {
			return all
		}
	}
}

// measureSet has one ManifestWorkReplicaSet reach all clusters, and change on all of them at two paces.
func (b *workBench) measureSet() {
	ctx := b.t.Context()
	for _, o := range []client.Object{
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "global"},
			Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: "global"}},
		&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "all"}},
	} {
		create(b.t, b.c, o)
	}
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "set"}}
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "all"}}
	set.Spec.ManifestWorkTemplate = setTemplate("1")
	b.phase("set created to all Applied", "", func() *tally {
		c := b.works.count(b.t, "Applied", b.size, hasVersion("1"))
		create(b.t, b.c, set)
		return c
	})
	change := func(what, share, version string, strategy clusterv1alpha1.RolloutStrategy) {
		b.phase(what, share, func() *tally {
			c := b.works.count(b.t, "Applied", b.size, hasVersion(version))
			patch := client.MergeFrom(set.DeepCopy())
			set.Spec.ManifestWorkTemplate = setTemplate(version)
			set.Spec.PlacementRefs[0].RolloutStrategy = strategy
			if err := b.c.Patch(ctx, set, patch); err != nil {
				b.t.Fatal(err)
			}
			return c
		})
	}
	change("set changed to all Applied, All", shareTarget, "2", clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.All})
	change("set changed to all Applied, Progressive 10 %", "", "3", clusterv1alpha1.RolloutStrategy{
		Type:        clusterv1alpha1.Progressive,
		Progressive: &clusterv1alpha1.RolloutProgressive{MaxConcurrency: ptr.To(intstr.FromString("10%"))},
	})
	begin := time.Now()
	awaitSet(b.t, b.c, b.size, func(s workv1alpha1.ManifestWorkReplicaSetSummary) bool {
		return s.Applied == b.size && s.Updated == b.size
	})
	b.add("last Applied to status of the set", "ms", "", milliseconds([]time.Duration{time.Since(begin)})...)
}

func hasVersion(version string) func(*workv1.ManifestWork) bool {
	written := fmt.Appendf(nil, `"version":%q`, version)
	return func(w *workv1.ManifestWork) bool {
		return isApplied(w) && bytes.Contains(w.Spec.Workload.Manifests[0].Raw, written)
	}
}

// isApplied tells whether the work is applied as it is now.
func isApplied(w *workv1.ManifestWork) bool {
	cond := meta.FindStatusCondition(w.Status.Conditions, fleet.ConditionApplied)
	return cond != nil && cond.Status == metav1.ConditionTrue && cond.ObservedGeneration == w.Generation
}

// atOnce writes works with as many clients as the hub has writers.
func atOnce(t *testing.T, works []*workv1.ManifestWork, write func(*workv1.ManifestWork) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(clientWriters)
	for _, w := range works {
		group.Go(func() error { return write(w) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}
