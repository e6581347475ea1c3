package brokerapi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

const finalizer = fleet.FinalizerManifestWorkCleanup

func newWork(name string) *workv1.ManifestWork {
	return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: testCluster, Name: name, Generation: 1},
		Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{
			{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap"}`)}}}}}}
}

func newCluster() *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: testCluster}}
}

// seen records the events of an informer.
type seen struct {
	mu     sync.Mutex
	events []string
	names  map[string]int64
}

func (s *seen) note(kind string, o any) {
	work, ok := o.(*workv1.ManifestWork)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, kind+" "+work.Name)
	if kind == "deleted" {
		delete(s.names, work.Name)
	} else {
		s.names[work.Name] = work.Generation
	}
}

func (s *seen) has(want map[string]int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.names) == fmt.Sprint(want)
}

func (s *seen) count(event string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.events {
		if one == event {
			n++
		}
	}
	return n
}

// beginCache runs a cache of the API, as the agent's, and records its events of works.
func beginCache(t *testing.T, a *API) (*hubclient.Cluster, *seen) {
	t.Helper()
	hub, err := hubclient.NewCluster(a.Config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { _ = hub.Start(ctx) }()
	informer, err := hub.GetCache().GetInformer(ctx, &workv1.ManifestWork{})
	if err != nil {
		t.Fatal(err)
	}
	s := &seen{names: map[string]int64{}}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { s.note("added", o) }, UpdateFunc: func(_, o any) { s.note("updated", o) }, DeleteFunc: func(o any) { s.note("deleted", o) },
	}); err != nil {
		t.Fatal(err)
	}
	return hub, s
}

// GR-11 CE-05 O13: a cache has what the hub has, from the beginning and after changes; each change is one event.
func TestCache(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	h.put(cloudevents.ManifestBundles, newWork("a"))
	b := newWork("b")
	h.put(cloudevents.ManifestBundles, b)
	a, _ := h.api(t)
	_, seen := beginCache(t, a)
	eventually(t, "the cache has a and b", func() bool { return seen.has(map[string]int64{"a": 1, "b": 1}) })
	changed := b.DeepCopy()
	changed.Generation = 2
	h.put(cloudevents.ManifestBundles, changed)
	h.put(cloudevents.ManifestBundles, newWork("c"))
	h.remove(cloudevents.ManifestBundles, h.get(cloudevents.ManifestBundles, "a").GetUID())
	eventually(t, "the cache has b and c", func() bool { return seen.has(map[string]int64{"b": 2, "c": 1}) })
	for _, event := range []string{"added a", "added b", "updated b", "added c", "deleted a"} {
		if n := seen.count(event); n != 1 {
			t.Errorf("%s: %d times", event, n)
		}
	}
}

// CE-05 CE-07 GR-11: after a restart of the broker, a cache has what changed while the agent was away, deletions too, and gets nothing
// else.
func TestReconnect(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	works := map[string]*workv1.ManifestWork{}
	for _, name := range []string{"stays", "changes", "goes"} {
		works[name] = newWork(name)
		h.put(cloudevents.ManifestBundles, works[name])
	}
	a, _ := h.api(t)
	_, seen := beginCache(t, a)
	eventually(t, "the cache is filled", func() bool { return seen.has(map[string]int64{"stays": 1, "changes": 1, "goes": 1}) })
	h.stop()
	eventually(t, "the subscription has ended", func() bool { return !h.isSubscribed(cloudevents.ManifestBundles) })
	changed := works["changes"].DeepCopy()
	changed.Generation = 2
	h.put(cloudevents.ManifestBundles, changed)
	h.put(cloudevents.ManifestBundles, newWork("comes"))
	h.remove(cloudevents.ManifestBundles, works["goes"].UID)
	// One of the same name is another one.
	h.start(t)
	eventually(t, "the cache has what happened", func() bool { return seen.has(map[string]int64{"stays": 1, "changes": 2, "comes": 1}) })
	for event, want := range map[string]int{"added stays": 1, "updated stays": 0, "updated changes": 1, "added comes": 1, "deleted goes": 1} {
		if n := seen.count(event); n != want {
			t.Errorf("%s: %d times, want %d", event, n, want)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.resyncs[len(h.resyncs)-1]
	requested := map[string]int64{}
	for _, one := range last.Versions {
		requested[one.ResourceID] = one.ResourceVersion
	}
	if requested[string(works["stays"].UID)] != 1 || len(requested) != 4 {
		t.Errorf("the resync request was %v", requested)
	}
}

// CE-05: an agent has works as a hub has them that was restored, in earlier versions than it knows: after a new subscription, and where the
// subscription has outlived the restore.
func TestRestored(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]func(t *testing.T, h *testHub, changed, deleted client.Object){
		"by a new subscription": func(t *testing.T, h *testHub, changed, deleted client.Object) {
			h.restart(t, cloudevents.ManifestBundles, func() { h.restore(cloudevents.ManifestBundles, changed, deleted) })
		},
		"by an earlier version": func(_ *testing.T, h *testHub, changed, deleted client.Object) {
			h.restore(cloudevents.ManifestBundles, changed, deleted)
			h.send(cloudevents.ManifestBundles, cloudevents.Create, changed)
		},
		"by a work that was deleted": func(_ *testing.T, h *testHub, changed, deleted client.Object) {
			h.restore(cloudevents.ManifestBundles, changed, deleted)
			h.send(cloudevents.ManifestBundles, cloudevents.Create, deleted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHub(t)
			changed, deleted := newWork("changed"), newWork("deleted")
			h.put(cloudevents.ManifestBundles, changed)
			h.put(cloudevents.ManifestBundles, deleted)
			later := withManifest(changed, "ConfigMap later")
			later.Generation = 2
			h.put(cloudevents.ManifestBundles, later)
			h.put(cloudevents.ManifestBundles, newWork("created"))
			a, c := h.api(t)
			_, seen := beginCache(t, a)
			eventually(t, "the cache is filled", func() bool { return seen.has(map[string]int64{"changed": 2, "deleted": 1, "created": 1}) })
			h.remove(cloudevents.ManifestBundles, deleted.UID)
			eventually(t, "a work is deleted", func() bool { return seen.has(map[string]int64{"changed": 2, "created": 1}) })
			restore(t, h, changed, deleted)
			eventually(t, "the works of the backup", func() bool { return seen.has(map[string]int64{"changed": 1, "deleted": 1}) })
			now := &workv1.ManifestWork{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(changed), now); err != nil ||
				strings.Contains(string(now.Spec.Workload.Manifests[0].Raw), "later") {
				t.Errorf("%+v: %v", now.Spec, err)
			}
		})
	}
}

// withManifest is the work with another spec.
func withManifest(work *workv1.ManifestWork, kind string) *workv1.ManifestWork {
	changed := work.DeepCopy()
	changed.Spec.Workload.Manifests[0].Raw = fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q}`, kind)
	return changed
}

// GR-08: an agent reports on its cluster to a hub that was restored, which has an earlier version of it than the agent knows.
func TestReportAfterRestore(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	cluster := newCluster()
	h.put(cloudevents.ManagedClusters, cluster)
	h.put(cloudevents.ManagedClusters, cluster.DeepCopy())
	_, c := h.api(t)
	now := newCluster()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), now); err != nil {
		t.Fatal(err)
	}
	h.restart(t, cloudevents.ManagedClusters, func() { h.restore(cloudevents.ManagedClusters, cluster) })
	eventually(t, "the hub accepts the status", func() bool {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), now); err != nil {
			return false
		}
		before := now.DeepCopy()
		now.Status.Version.Kubernetes = "v1"
		_, err := patch.Status(t.Context(), c, now, before)
		return err == nil
	})
}

// CE-05: an answer to a resync request sets back what is known of an object from before the request. It has no say in what the hub has sent
// since, and other events are late if they are older, or about what was deleted.
func TestOrder(t *testing.T) {
	t.Parallel()
	const asked, answer, changed, deleted = cloudevents.Resync, cloudevents.ResyncResponse, cloudevents.Update, cloudevents.Delete
	type step struct {
		action  cloudevents.Action
		version string
	}
	for name, test := range map[string]struct {
		steps []step
		want  string // the version that is known in the end; empty if the object is deleted
		again bool   // whether the last event makes the agent ask once more
	}{
		"a later event":                         {[]step{{changed, "1600"}}, "1600", false},
		"the same again":                        {[]step{{changed, "1500"}}, "1500", false},
		"an earlier event":                      {[]step{{changed, "1000"}}, "1500", true},
		"an answer":                             {[]step{{asked, ""}, {answer, "1000"}}, "1000", false},
		"an earlier event before the answer":    {[]step{{asked, ""}, {changed, "1000"}, {answer, "1000"}}, "1000", false},
		"an answer overtaken by a later event":  {[]step{{asked, ""}, {changed, "1600"}, {answer, "1000"}}, "1600", true},
		"an answer overtaken by the same again": {[]step{{asked, ""}, {changed, "1500"}, {answer, "1000"}}, "1500", true},
		"an answer without a request":           {[]step{{answer, "1000"}}, "1500", true},
		"an event about a deleted object":       {[]step{{deleted, ""}, {asked, ""}, {changed, "1600"}}, "", true},
		"an answer about a deleted object":      {[]step{{deleted, ""}, {asked, ""}, {answer, "1000"}}, "1000", false},
		"an answer overtaken by the deletion":   {[]step{{asked, ""}, {deleted, ""}, {answer, "1000"}}, "", true},
	} {
		c := New(t.Context(), Options{Cluster: testCluster, Clock: clock.RealClock{}}).collections["managedclusters"]
		again := false
		for _, step := range append([]step{{changed, "1500"}}, test.steps...) {
			var err error
			switch step.action {
			case asked:
				c.ask()
			case deleted:
				err = c.remove("u")
			default:
				o := &unstructured.Unstructured{Object: map[string]any{}}
				o.SetName(testCluster)
				o.SetUID("u")
				o.SetResourceVersion(step.version)
				again, err = c.receive(o, step.action, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		known := ""
		if r := c.get(types.NamespacedName{Name: testCluster}); r != nil {
			known = r.hubVersion
		}
		if known != test.want || again != test.again {
			t.Errorf("%s: known is %q, want %q; the hub is asked again: %t", name, known, test.want, again)
		}
	}
}

// A work keeps the status of a spec that it has, or had before. One that it had on a hub which was restored since says nothing, even if the
// generation is the same, and whether it is reported before or after the agent hears of that.
func TestStatusOfASpec(t *testing.T) {
	t.Parallel()
	work := newWork("a")
	work.UID, work.Generation, work.ResourceVersion = "u", 4, "1500"
	other := withManifest(work, "Secret")
	for name, test := range map[string]struct {
		now        *workv1.ManifestWork
		generation int64
		want       bool
	}{
		"the same":                {work, 4, true},
		"a later one":             {other, 5, true},
		"another one of a number": {other, 4, false},
		"an earlier one":          {other, 3, false},
	} {
		for _, late := range []bool{false, true} {
			c := New(t.Context(), Options{Cluster: testCluster, Clock: clock.RealClock{}}).collections[resourceWorks]
			receive := func(work *workv1.ManifestWork) {
				event := encode(cloudevents.ManifestBundles, cloudevents.Update, work)
				if _, err := c.receiveWork(event, cloudevents.Update); err != nil {
					t.Fatal(err)
				}
			}
			receive(work)
			base := c.get(client.ObjectKeyFromObject(work))
			next, err := base.object()
			if err != nil {
				t.Fatal(err)
			}
			applied := map[string]any{"type": fleet.ConditionApplied, "status": "True"}
			if err := unstructured.SetNestedSlice(next.Object, []any{applied}, "status", "conditions"); err != nil {
				t.Fatal(err)
			}
			report := func() {
				if _, err := c.acceptedWork(base, next, true); err != nil {
					t.Fatal(err)
				}
			}
			if !late {
				report()
			}
			now := test.now.DeepCopy()
			now.Generation, now.ResourceVersion, now.Labels = test.generation, "2000", map[string]string{"a": "b"}
			receive(now)
			if late {
				report()
			}
			o, err := c.get(client.ObjectKeyFromObject(work)).object()
			if err != nil {
				t.Fatal(err)
			}
			if conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions"); len(conditions) > 0 != test.want {
				t.Errorf("%s, reported late: %t: conditions %v", name, late, conditions)
			}
		}
	}
}

// GR-11: a work that was deleted and created again under its name is deleted and added.
func TestRecreated(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	first := newWork("a")
	h.put(cloudevents.ManifestBundles, first)
	a, _ := h.api(t)
	_, seen := beginCache(t, a)
	eventually(t, "the cache is filled", func() bool { return seen.has(map[string]int64{"a": 1}) })
	second := newWork("a")
	second.Generation = 5
	h.mu.Lock()
	delete(h.objects[cloudevents.ManifestBundles], string(first.UID))
	h.mu.Unlock()
	h.put(cloudevents.ManifestBundles, second)
	eventually(t, "the cache has the second", func() bool { return seen.has(map[string]int64{"a": 5}) })
	// What was late about the first changes nothing.
	h.mu.Lock()
	h.notify(cloudevents.ManifestBundles, encode(cloudevents.ManifestBundles, cloudevents.Update, first))
	h.mu.Unlock()
	h.put(cloudevents.ManifestBundles, newWork("b"))
	eventually(t, "the cache has b", func() bool { return seen.has(map[string]int64{"a": 5, "b": 1}) })
}

// GR-11 CE-05 CE-07: a work that its source says to be gone is gone, also if it answers to a resync request as sources of the SDK do: with
// the time at which it was deleted, and nothing else. One that the source has all the same is there again when the agent subscribes again.
func TestGoneByMistake(t *testing.T) {
	t.Parallel()
	ofSDK := func(event *cloudevents.Event) {
		event.Type = cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Spec,
			Action: cloudevents.ResyncResponse}.String()
		event.Extensions[cloudevents.ExtensionDeletedAt] = time.Now()
	}
	for name, say := range map[string]func(*cloudevents.Event){"of the hub": func(*cloudevents.Event) {}, "of the SDK": ofSDK} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHub(t)
			work := newWork("a")
			h.put(cloudevents.ManifestBundles, work)
			_, c := h.api(t)
			get := func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(work), &workv1.ManifestWork{}) }
			if err := get(); err != nil {
				t.Fatal(err)
			}
			event := gone(cloudevents.ManifestBundles, string(work.UID))
			say(event)
			h.mu.Lock()
			h.notify(cloudevents.ManifestBundles, event)
			h.mu.Unlock()
			eventually(t, "the work is gone", func() bool { return apierrors.IsNotFound(get()) })
			h.restart(t, cloudevents.ManifestBundles, func() {})
			eventually(t, "the work is there again", func() bool { return get() == nil })
		})
	}
}

// WK-14 CE-07: a hub that still waits for the end of a work which the agent has reported to have left the cluster is notified again, each
// time the same. Of a work that the hub itself has said to be gone, the agent says nothing.
func TestDeletedIsReportedAgain(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	work := newWork("a")
	work.DeletionTimestamp, work.Finalizers = ptr.To(metav1.Now()), []string{finalizer}
	h.put(cloudevents.ManifestBundles, work)
	other := newWork("b")
	h.put(cloudevents.ManifestBundles, other)
	a, c := h.api(t)
	known := &workv1.ManifestWork{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(work), known); err != nil {
		t.Fatal(err)
	}
	if err := patch.RemoveFinalizer(t.Context(), c, known, finalizer); err != nil {
		t.Fatal(err)
	}
	h.remove(cloudevents.ManifestBundles, other.UID)
	eventually(t, "b is gone", func() bool { return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(other), known)) })
	if a.collections[resourceWorks].isReported(string(other.UID)) {
		t.Error("the hub would be told that b has left the cluster")
	}
	hashes := map[string]bool{}
	for _, action := range []cloudevents.Action{cloudevents.Update, cloudevents.Delete} {
		h.mu.Lock()
		h.published = nil
		h.notify(cloudevents.ManifestBundles, encode(cloudevents.ManifestBundles, action, work))
		h.mu.Unlock()
		eventually(t, "the report", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.published) > 0
		})
		h.mu.Lock()
		reported, err := manifestbundle.DecodeStatus(h.published[0])
		hashes[h.published[0].Text(cloudevents.ExtensionStatusHash)] = true
		h.mu.Unlock()
		if err != nil || reported.UID != work.UID || !meta.IsStatusConditionTrue(reported.Status.Conditions, manifestbundle.ConditionDeleted) ||
			len(reported.Finalizers) > 0 {
			t.Errorf("after %s, the hub is told %+v, %v", action, reported, err)
		}
	}
	if len(hashes) != 1 {
		t.Errorf("the reports differ: %v", hashes)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(work), known); !apierrors.IsNotFound(err) {
		t.Errorf("the work is there again: %v", err)
	}
}

// GR-08 GR-10 CE-04: a patch of the status is visible at once, goes to the hub with the hub's version, and conflicts with what the client
// has not seen.
func TestStatusAndConflict(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	h.put(cloudevents.ManagedClusters, newCluster())
	_, c := h.api(t)
	cluster := &clusterv1.ManagedCluster{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(newCluster()), cluster); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v2", "v3"} {
		before := cluster.DeepCopy()
		cluster.Status.Version.Kubernetes = version
		if _, err := patch.Status(t.Context(), c, cluster, before); err != nil {
			t.Fatal(err)
		}
		now := &clusterv1.ManagedCluster{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), now); err != nil || now.Status.Version.Kubernetes != version {
			t.Errorf("%s: %+v, %v", version, now.Status, err)
		}
		cluster = now
	}
	stale := cluster.DeepCopy()
	before := cluster.DeepCopy()
	cluster.Status.Version.Kubernetes = "v4"
	if _, err := patch.Status(t.Context(), c, cluster, before); err != nil {
		t.Fatal(err)
	}
	changed := stale.DeepCopy()
	changed.Status.Version.Kubernetes = "v5"
	if _, err := patch.Status(t.Context(), c, changed, stale); !apierrors.IsConflict(err) {
		t.Errorf("a stale patch: %v", err)
	}
	// A change that the agent has not received yet: the hub says so.
	now := &clusterv1.ManagedCluster{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), now); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.mute = true
	h.mu.Unlock()
	h.put(cloudevents.ManagedClusters, h.get(cloudevents.ManagedClusters, testCluster))
	before = now.DeepCopy()
	now.Status.Version.Kubernetes = "v6"
	if _, err := patch.Status(t.Context(), c, now, before); !apierrors.IsConflict(err) {
		t.Errorf("a change that only the hub knows: %v", err)
	}
}

// RG-51: a request for a certificate can be read and watched as soon as the hub has accepted it, and what the hub makes of it follows.
func TestCreate(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	_, c := h.api(t)
	h.mu.Lock()
	h.mute = true
	h.mu.Unlock()
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "cluster1-",
		Labels: map[string]string{"a": "b"}}}
	if err := c.Create(t.Context(), csr); err != nil || !strings.HasPrefix(csr.Name, "cluster1-") {
		t.Fatalf("%s: %v", csr.Name, err)
	}
	w, err := c.Watch(t.Context(), &certificatesv1.CertificateSigningRequestList{},
		&client.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", csr.Name)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Errorf("got %+v", event)
	}
	if err := c.Create(t.Context(), csr.DeepCopy()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("again: %v", err)
	}
	all := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(t.Context(), all, client.MatchingLabels{"a": "b"}); err != nil || len(all.Items) != 1 {
		t.Errorf("%d listed, %v", len(all.Items), err)
	}
	if err := c.List(t.Context(), all, client.MatchingLabels{"a": "c"}); err != nil || len(all.Items) != 0 {
		t.Errorf("%d listed, %v", len(all.Items), err)
	}
	h.mu.Lock()
	h.mute = false
	h.mu.Unlock()
	h.put(cloudevents.SigningRequests, h.get(cloudevents.SigningRequests, csr.Name))
	event := <-w.ResultChan()
	if now, ok := event.Object.(*certificatesv1.CertificateSigningRequest); event.Type != watch.Modified || !ok || now.UID == "" {
		t.Errorf("got %+v", event)
	}
}

// CE-05 O13: what the hub accepted and does not have any more is gone after the next resync.
func TestCreatedAndLost(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	_, c := h.api(t)
	h.mu.Lock()
	h.mute = true
	h.mu.Unlock()
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if err := c.Create(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	h.remove(cloudevents.SigningRequests, h.get(cloudevents.SigningRequests, "x").GetUID())
	h.stop()
	h.start(t)
	eventually(t, "the request is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr.DeepCopy()))
	})
}

// CE-03 CE-04 GR-09: the status of a work stays when the hub sends a new spec; the finalizer goes with the report that the work has left.
func TestWork(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	h.put(cloudevents.ManifestBundles, newWork("a"))
	_, c := h.api(t)
	work := &workv1.ManifestWork{}
	key := client.ObjectKeyFromObject(newWork("a"))
	if err := c.Get(t.Context(), key, work); err != nil || len(work.Spec.Workload.Manifests) != 1 {
		t.Fatalf("%+v: %v", work, err)
	}
	if err := patch.AddFinalizer(t.Context(), c, work, finalizer); err != nil {
		t.Fatal(err)
	}
	if on := h.get(cloudevents.ManifestBundles, "a").GetFinalizers(); len(on) != 1 {
		t.Errorf("on the hub, it has the finalizers %v", on)
	}
	status := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: testCluster, Name: "a", UID: work.UID,
		ResourceVersion: work.ResourceVersion}}
	meta.SetStatusCondition(&status.Status.Conditions, metav1.Condition{Type: fleet.ConditionApplied,
		Status: metav1.ConditionTrue, Reason: "Done"})
	if err := c.Status().Update(t.Context(), status); err != nil || len(status.Spec.Workload.Manifests) != 1 || len(status.Finalizers) != 1 {
		t.Fatalf("%+v: %v", status, err)
	}
	next, _ := h.get(cloudevents.ManifestBundles, "a").DeepCopyObject().(*workv1.ManifestWork)
	next.Generation = 2
	h.put(cloudevents.ManifestBundles, next)
	eventually(t, "the second generation", func() bool {
		err := c.Get(t.Context(), key, work)
		return err == nil && work.Generation == 2
	})
	if !meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionApplied) {
		t.Error("the status is lost")
	}
	if err := c.Status().Update(t.Context(), status); !apierrors.IsConflict(err) {
		t.Errorf("a stale status: %v", err)
	}
	if err := patch.RemoveFinalizer(t.Context(), c, work.DeepCopy(), finalizer); !apierrors.IsForbidden(err) {
		t.Errorf("the finalizer of a work that is not being deleted: %v", err)
	}
	renamed := work.DeepCopy()
	renamed.Labels = map[string]string{"a": "b"}
	if err := c.Update(t.Context(), renamed); !apierrors.IsForbidden(err) {
		t.Errorf("a label: %v", err)
	}
	deleting := next.DeepCopy()
	deleting.DeletionTimestamp = ptr.To(metav1.Now())
	h.put(cloudevents.ManifestBundles, deleting)
	eventually(t, "the deletion", func() bool {
		err := c.Get(t.Context(), key, work)
		return err == nil && work.DeletionTimestamp != nil
	})
	if len(work.Spec.Workload.Manifests) != 1 {
		t.Error("the spec is lost")
	}
	if err := patch.RemoveFinalizer(t.Context(), c, work, finalizer); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, work); !apierrors.IsNotFound(err) {
		t.Errorf("after the end: %v", err)
	}
	on, _ := h.get(cloudevents.ManifestBundles, "a").(*workv1.ManifestWork)
	if !meta.IsStatusConditionTrue(on.Status.Conditions, manifestbundle.ConditionDeleted) {
		t.Errorf("the hub was told %+v", on.Status)
	}
}

// CE-06: the agent answers a request for statuses with those that the hub does not have.
func TestStatusResync(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	h.put(cloudevents.ManifestBundles, newWork("a"))
	h.put(cloudevents.ManifestBundles, newWork("b"))
	_, c := h.api(t)
	hashes := cloudevents.StatusHashes{Hashes: []cloudevents.StatusHash{}}
	for _, name := range []string{"a", "b"} {
		work := &workv1.ManifestWork{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: testCluster, Name: name}, work); err != nil {
			t.Fatal(err)
		}
		meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{Type: fleet.ConditionApplied,
			Status: metav1.ConditionTrue, Reason: "Done"})
		if err := c.Status().Update(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		hash, err := cloudevents.HashStatus(&work.Status)
		if err != nil {
			t.Fatal(err)
		}
		if name == "b" {
			hash = "another"
		}
		hashes.Hashes = append(hashes.Hashes, cloudevents.StatusHash{ResourceID: string(work.UID), StatusHash: hash})
	}
	event := cloudevents.New("hub", cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Status, Action: cloudevents.Resync},
		time.Now())
	if err := event.SetData(hashes); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.published = nil
	h.notify(cloudevents.ManifestBundles, event)
	h.mu.Unlock()
	var answers []string
	eventually(t, "the answer", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		answers = nil
		for _, one := range h.published {
			answers = append(answers, one.Type+" "+one.Text(cloudevents.ExtensionResourceID))
		}
		return len(answers) > 0
	})
	want := cloudevents.ManifestBundles.String() + ".status.resync_response " + hashes.Hashes[1].ResourceID
	if len(answers) != 1 || answers[0] != want {
		t.Errorf("got %v, want %s", answers, want)
	}
}

// GR-11: a lease is renewed again and again.
func TestLease(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	h.put(cloudevents.Leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: testCluster, Name: fleet.ClusterNamespaceLease}})
	_, c := h.api(t)
	lease := &coordinationv1.Lease{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: testCluster, Name: fleet.ClusterNamespaceLease}, lease); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Unix(int64(i), 0)))
		if err := c.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
}

// GR-08 CE-13: events are written, and counted; tokens come back.
func TestEventsAndTokens(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	_, c := h.api(t)
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: testCluster, Name: "e"}, Reason: "R"}
	if err := c.Create(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	series := client.RawPatch(types.StrategicMergePatchType, []byte(`{"series":{"count":2}}`))
	if err := c.Patch(t.Context(), event, series); err != nil || event.Series == nil || event.Series.Count != 2 || event.Reason != "R" {
		t.Errorf("%+v: %v", event, err)
	}
	other := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: testCluster, Name: "unknown"}}
	if err := c.Patch(t.Context(), other, series); !apierrors.IsNotFound(err) {
		t.Errorf("an unknown event: %v", err) // the recorder then creates it
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: testCluster, Name: "a-agent"}}
	token := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), account, token); err != nil || token.Status.Token != "secret" {
		t.Errorf("%+v: %v", token, err)
	}
}

// GR-10 O13: errors of the broker are those of the API.
func TestErrors(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	h.put(cloudevents.ManagedClusters, newCluster())
	_, c := h.api(t)
	cluster := newCluster()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		err error
		is  func(error) bool
	}{
		"denied":   {status.Error(codes.PermissionDenied, "no"), apierrors.IsForbidden},
		"unknown":  {status.Error(codes.Unauthenticated, "no"), apierrors.IsUnauthorized},
		"away":     {status.Error(codes.Unavailable, "no"), apierrors.IsServiceUnavailable},
		"late":     {status.Error(codes.DeadlineExceeded, "no"), apierrors.IsTimeout},
		"large":    {status.Error(codes.ResourceExhausted, "no"), apierrors.IsRequestEntityTooLargeError},
		"broken":   {status.Error(codes.Unknown, "no"), apierrors.IsInternalError},
		"its own":  {cloudevents.PublishError(apierrors.NewResourceExpired("no")), apierrors.IsResourceExpired},
		"any kind": {status.Error(codes.InvalidArgument, "no"), apierrors.IsBadRequest},
	} {
		h.mu.Lock()
		h.refuse = func(*cloudevents.Event) error { return test.err }
		h.mu.Unlock()
		before := cluster.DeepCopy()
		changed := cluster.DeepCopy()
		changed.Status.Version.Kubernetes = name
		if _, err := patch.Status(t.Context(), c, changed, before); !test.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// GR-11: what events cannot do is refused in words, and is not taken for absent.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	_, c := h.api(t)
	for name, try := range map[string]func() error{
		"secrets": func() error { return c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(testCluster)) },
		"configmaps": func() error {
			return c.Get(t.Context(), client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}, &corev1.ConfigMap{})
		},
		"selfsubjectaccessreviews": func() error { return c.Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{}) },
		"managedclusters":          func() error { return c.Delete(t.Context(), newCluster()) },
		"manifestworks":            func() error { return c.Create(t.Context(), newWork("a")) },
	} {
		if err := try(); !apierrors.IsMethodNotSupported(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "other", Name: "a"}, &workv1.ManifestWork{}); err == nil {
		t.Error("another namespace can be read")
	}
}

// GR-11: a hub that refuses the subscription refuses reads, and ends watches, so that the agent learns of it.
func TestRefusedSubscription(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	h.put(cloudevents.AddOnsOfBetaAPI, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: testCluster, Name: "a"}})
	_, c := h.api(t)
	w, err := c.Watch(t.Context(), &addonv1beta1.ManagedClusterAddOnList{}, client.InNamespace(testCluster))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Fatalf("got %+v", event)
	}
	h.mu.Lock()
	h.refuseAll = status.Error(codes.Unauthenticated, "the cluster was deleted")
	h.mu.Unlock()
	h.stop()
	h.start(t)
	if event, open := <-w.ResultChan(); open {
		t.Errorf("got %+v", event)
	}
	if err := c.List(t.Context(), &addonv1beta1.ManagedClusterAddOnList{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("got %v", err)
	}
}

// GR-11: a watch that is further behind than the history has to start again.
func TestExpired(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	h.put(cloudevents.ManifestBundles, newWork("a"))
	_, c := h.api(t)
	list := &workv1.ManifestWorkList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	old := list.ResourceVersion
	for i := range maxHistory + 10 {
		h.put(cloudevents.ManifestBundles, newWork(fmt.Sprintf("b%d", i)))
	}
	eventually(t, "all works", func() bool {
		return c.List(t.Context(), list) == nil && len(list.Items) == maxHistory+11
	})
	_, err := c.Watch(t.Context(), list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: old}})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v", err)
	}
	w, err := c.Watch(t.Context(), list, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: ptr.To[int64](1)}})
	if err != nil {
		t.Fatal(err)
	}
	if event, open := <-w.ResultChan(); open {
		t.Errorf("got %+v, want the end of the watch", event)
	}
}
