package fleetsim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/heartbeat"
	"github.com/capstan-io/capstan/internal/agent/registration/monitor"
	"github.com/capstan-io/capstan/internal/agent/work/apply"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/agent/work/executor"
	"github.com/capstan-io/capstan/internal/agent/work/observe"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/consistentclient"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// wire is a way to a cluster that can be cut, and counts what goes over it or tries to.
type wire struct {
	next http.RoundTripper

	mu       sync.Mutex
	cut      bool
	cutAfter func(*http.Request) bool
	streams  map[int]context.CancelFunc
	last     int
	requests int
	writes   int
}

func newWire(config *rest.Config) (*wire, *rest.Config) {
	w := &wire{next: config.Transport, streams: map[int]context.CancelFunc{}}
	config.Transport = w
	return w, config
}

// RoundTrip implements http.RoundTripper. A wire that is cut behaves as the kernel of a machine without a server on it.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, err := w.begin(r)
	if err != nil {
		return nil, err
	}
	return w.next.RoundTrip(r.WithContext(ctx))
}

func (w *wire) begin(r *http.Request) (context.Context, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests++
	if r.Method != http.MethodGet {
		w.writes++
	}
	if w.cut {
		return nil, syscall.ECONNREFUSED
	}
	if w.cutAfter != nil && w.cutAfter(r) {
		w.severLocked()
		return r.Context(), nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	w.last++
	w.streams[w.last] = cancel
	return ctx, nil
}

// sever cuts the wire, watches and all.
func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.severLocked()
}

// severAfter lets one more request through than sever does, the next of its sort: it is answered, but no watch tells of it.
func (w *wire) severAfter(last func(*http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutAfter = last
}

func (w *wire) severLocked() {
	w.cut, w.cutAfter = true, nil
	for _, cancel := range w.streams {
		cancel()
	}
	clear(w.streams)
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// take returns how many requests there were since the last call.
func (w *wire) take() (requests, writes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	requests, writes = w.requests, w.writes
	w.requests, w.writes = 0, 0
	return requests, writes
}

const (
	outageWorks   = 50
	outageCluster = "cluster1"
	outageHash    = "hub"
)

// outage is an agent's controllers between a hub and a managed cluster, both in memory, in simulated time.
type outage struct {
	t            *testing.T
	toHub, local *wire
	// hub and cluster are seen by an observer whose connection is never cut.
	hub, cluster client.Client
}

func newOutage(t *testing.T) *outage {
	onHub, onCluster := NewCluster("hub"), NewCluster("managed")
	o := &outage{t: t, hub: env.ClientFor(t, onHub.Config()), cluster: env.ClientFor(t, onCluster.Config())}
	for _, crd := range crds.Hub() {
		o.create(o.hub, definition(crd))
	}
	for _, crd := range crds.ManagedCluster() {
		if crd.Spec.Group == workv1.GroupVersion.Group {
			o.create(o.cluster, definition(crd))
		}
	}
	o.create(o.hub, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: outageCluster}})
	o.create(o.hub, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: outageCluster},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: 60}})
	o.create(o.hub, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: outageCluster, Name: fleet.ClusterNamespaceLease}})
	var hubConfig, clusterConfig *rest.Config
	o.toHub, hubConfig = newWire(onHub.Config())
	o.local, clusterConfig = newWire(onCluster.Config())
	o.run(hubConfig, clusterConfig)
	return o
}

func definition(crd *apiextensionsv1.CustomResourceDefinition) client.Object {
	o := &unstructured.Unstructured{Object: sure(k8sruntime.DefaultUnstructuredConverter.ToUnstructured(crd))}
	o.SetGroupVersionKind(definitions.gvk())
	return o
}

// run runs the controllers of the agent as internal/agent does, without what belongs to a machine: files, certificates, sockets.
func (o *outage) run(hubConfig, clusterConfig *rest.Config) {
	ctx := o.t.Context()
	hub := sure(hubclient.NewCluster(hubConfig))
	mgr := sure(ctrl.NewManager(clusterConfig, ctrl.Options{
		Scheme: env.Scheme(), NewClient: consistentclient.NewClient, Metrics: metricsserver.Options{BindAddress: "0"},
	}))
	objects := sure(dynamic.NewForConfig(clusterConfig))
	partial := sure(metadata.NewForConfig(clusterConfig))
	managed := &deletion.Cluster{Objects: partial, Complete: objects,
		Discovery: sure(discovery.NewDiscoveryClientForConfig(clusterConfig)), Tracked: tracker.New(ctx, partial)}
	observed := observe.New(objects, managed.Tracked, observe.Options{MaxJSONRawLength: 1024, Clock: clock.RealClock{}})
	uncached := sure(hubclient.New(hubConfig))
	connection := monitor.New(uncached, outageCluster, 0, clock.RealClock{})
	for _, err := range []error{
		mgr.Add(hub), mgr.Add(observed), mgr.Add(manager.RunnableFunc(connection.Start)),
		heartbeat.Register(mgr, heartbeat.Options{
			Hub: hub, Leases: uncached, CheckHub: connection.CheckNow, Clock: clock.RealClock{},
			Record: func(string, string, string, string, ...any) {},
		}),
		deletion.Register(mgr, deletion.Options{
			Hub: hub, Applied: managed, Namespace: outageCluster, HubHash: outageHash, AgentID: "agent", GracePeriod: time.Minute, Workers: 10,
			Clock: clock.RealClock{},
		}),
		apply.Register(mgr, apply.Options{
			Hub: hub, Objects: objects, Applied: managed, Observer: observed,
			Namespace: outageCluster, HubHash: outageHash, AgentID: "agent", Workers: 10,
			Executors: sure(executor.New(clusterConfig, clock.RealClock{})),
			Record:    func(*workv1.ManifestWork, string, string, string, string) {}, Clock: clock.RealClock{},
		}),
	} {
		if err != nil {
			o.t.Fatal(err)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := mgr.Start(ctx); err != nil {
			o.t.Error(err)
		}
	}()
	o.t.Cleanup(func() {
		<-ended
		<-time.After(5 * time.Minute) // until caches that wait to try the hub again have looked up
	})
}

func sure[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (o *outage) create(c client.Client, objects ...client.Object) {
	o.t.Helper()
	for _, object := range objects {
		if err := c.Create(o.t.Context(), object); err != nil {
			o.t.Fatal(err)
		}
	}
}

// within lets time pass until there is no error, and fails the test if that takes longer.
func (o *outage) within(limit time.Duration, what string, check func() error) {
	o.t.Helper()
	began := time.Now()
	for {
		err := check()
		took := time.Since(began)
		switch {
		case err == nil:
			o.t.Logf("%s: %s", what, took)
			return
		case took > limit:
			o.t.Fatalf("%s: not after %s: %v", what, took, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func (o *outage) work(name string, manifests ...string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: outageCluster, Name: name}}
	for _, m := range manifests {
		w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, workv1.Manifest{RawExtension: k8sruntime.RawExtension{Raw: []byte(m)}})
	}
	return w
}

func configMapOf(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q},"data":{"key":%q}}`, name, value)
}

func deploymentOf(name string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"default","name":%q},"spec":{"replicas":1}}`, name)
}

// condition fails unless the work has the condition, at its present generation.
func (o *outage) condition(name, kind string, status metav1.ConditionStatus) error {
	w := &workv1.ManifestWork{}
	if err := o.hub.Get(o.t.Context(), client.ObjectKey{Namespace: outageCluster, Name: name}, w); err != nil {
		return err
	}
	cond := meta.FindStatusCondition(w.Status.Conditions, kind)
	if cond == nil || cond.Status != status || cond.ObservedGeneration != w.Generation {
		return fmt.Errorf("work %s has %+v, want %s=%s", name, cond, kind, status)
	}
	return nil
}

func (o *outage) value(name, value string) error {
	cm := &corev1.ConfigMap{}
	if err := o.cluster.Get(o.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, cm); err != nil {
		return err
	}
	if cm.Data["key"] != value {
		return fmt.Errorf("ConfigMap %s holds %v, want %q", name, cm.Data, value)
	}
	return nil
}

// report is the Deployment's controller, which says that it is available or not.
func (o *outage) report(name string, available int32) {
	o.t.Helper()
	d := &appsv1.Deployment{}
	if err := o.cluster.Get(o.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, d); err != nil {
		o.t.Fatal(err)
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: available,
		AvailableReplicas: available}
	if err := o.cluster.Status().Update(o.t.Context(), d); err != nil {
		o.t.Fatal(err)
	}
}

// intact fails unless everything is on the cluster that was, and nothing of it is about to go.
func (o *outage) intact() error {
	all := &workv1.AppliedManifestWorkList{}
	if err := o.cluster.List(o.t.Context(), all); err != nil {
		return err
	}
	if len(all.Items) != outageWorks {
		return fmt.Errorf("%d AppliedManifestWorks of %d works", len(all.Items), outageWorks)
	}
	var errs []error
	for _, amw := range all.Items {
		if amw.DeletionTimestamp != nil || amw.Status.EvictionStartTime != nil {
			errs = append(errs, fmt.Errorf("AppliedManifestWork %s is going: %+v", amw.Name, amw.Status))
		}
	}
	for i := range outageWorks {
		errs = append(errs, o.value(fmt.Sprintf("cm-%d", i), "1"))
	}
	return errors.Join(errs...)
}

// queued is how much is in the queues of all controllers.
func queued(t *testing.T) (n float64) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "workqueue_depth" {
			for _, sample := range family.GetMetric() {
				n += sample.GetGauge().GetValue()
			}
		}
	}
	return n
}

// WK-15: a hub that does not answer for an hour has not lost its works. All decisions are made from the cache: nothing is
// deleted or evicted, and what a user changes on the cluster is put right. The hub is tried now and then, not by everybody,
// and learns at once what it has missed.
func TestHubGoneForAnHour(t *testing.T) { //nolint:paralleltest // it counts goroutines
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		for i := range outageWorks {
			o.create(o.hub, o.work(fmt.Sprintf("work-%d", i), configMapOf(fmt.Sprintf("cm-%d", i), "1"), deploymentOf(fmt.Sprintf("app-%d", i))))
		}
		all := func(condition string) func() error {
			return func() error {
				var errs []error
				for i := range outageWorks {
					errs = append(errs, o.condition(fmt.Sprintf("work-%d", i), condition, metav1.ConditionTrue))
				}
				return errors.Join(errs...)
			}
		}
		o.within(10*time.Second, "all applied", all(fleet.ConditionApplied))
		for i := range outageWorks {
			o.report(fmt.Sprintf("app-%d", i), 0)
		}
		o.within(10*time.Second, "none available", all(fleet.ConditionProgressing))
		<-time.After(5 * time.Minute)
		goroutines := runtime.NumGoroutine()
		o.toHub.take()
		o.local.take()

		o.toHub.sever()
		<-time.After(10 * time.Minute)
		o.driftAndRepair()
		for i := range outageWorks {
			o.report(fmt.Sprintf("app-%d", i), 1)
		}
		o.changeTheHub()
		<-time.After(50*time.Minute + 3*time.Second) // not in the moment of a try
		synctest.Wait()
		if err := o.intact(); err != nil {
			t.Error(err)
		}
		requests, _ := o.toHub.take()
		_, writes := o.local.take()
		t.Logf("in an hour without hub: %d requests to it, %d writes to the cluster, %d goroutines more", requests, writes,
			runtime.NumGoroutine()-goroutines)
		// Watches and the heartbeat try again at intervals of 10 to 60 seconds, and all works together once every 10.
		if requests > 1900 {
			t.Errorf("%d requests to a hub that is not there", requests)
		}
		if writes != repairs {
			t.Errorf("%d writes to the cluster, want %d", writes, repairs)
		}
		if n := runtime.NumGoroutine(); n > goroutines+20 {
			t.Errorf("%d goroutines before the outage, %d in it", goroutines, n)
		}
		if n := queued(t); n > 0 {
			t.Errorf("%g requests are queued", n)
		}

		o.toHub.mend()
		o.within(11*time.Second, "what happened on the cluster is known", func() error {
			var errs []error
			for i := 2; i < outageWorks; i++ { // the hub has changed the first two
				errs = append(errs, o.condition(fmt.Sprintf("work-%d", i), fleet.ConditionProgressing, metav1.ConditionFalse))
			}
			return errors.Join(errs...)
		})
		o.within(20*time.Second, "the heartbeat is back", func() error {
			l := &coordinationv1.Lease{}
			if err := o.hub.Get(t.Context(), client.ObjectKey{Namespace: outageCluster, Name: fleet.ClusterNamespaceLease}, l); err != nil {
				return err
			}
			if time.Since(l.Spec.RenewTime.Time) > time.Minute {
				return fmt.Errorf("renewed at %s", l.Spec.RenewTime)
			}
			return nil
		})
		o.within(90*time.Second, "what happened on the hub is done", func() error {
			err := o.hub.Get(t.Context(), client.ObjectKey{Namespace: outageCluster, Name: "work-1"}, &workv1.ManifestWork{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("work-1 is still there: %w", err)
			}
			return errors.Join(o.value("cm-0", "2"), o.value("cm-new", "1"), o.condition("work-0", fleet.ConditionApplied, metav1.ConditionTrue))
		})
		requests, _ = o.toHub.take()
		// A report each, and what the three changes cost.
		if most := 2*outageWorks + 30; requests > most {
			t.Errorf("%d requests to the hub when it was back, want %d at most", requests, most)
		}
	})
}

// WK-15: a hub that goes before it has told of what the agent wrote there last does not keep the agent from its works.
func TestHubGoneAfterAReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		o.create(o.hub, o.work("work", configMapOf("cm", "1"), deploymentOf("app")))
		o.within(10*time.Second, "applied", func() error { return o.condition("work", fleet.ConditionApplied, metav1.ConditionTrue) })
		o.report("app", 0)
		o.within(10*time.Second, "not available", func() error { return o.condition("work", fleet.ConditionProgressing, metav1.ConditionTrue) })
		<-time.After(5 * time.Minute)

		o.toHub.severAfter(func(r *http.Request) bool {
			return r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, "/manifestworks/work/status")
		})
		o.report("app", 1)
		o.within(10*time.Second, "the last report",
			func() error { return o.condition("work", fleet.ConditionProgressing, metav1.ConditionFalse) })
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"key":"changed"}}`))
		if err := o.cluster.Patch(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm"}},
			patch); err != nil {
			t.Fatal(err)
		}
		o.within(15*time.Second, "changed object is as it was", func() error { return o.value("cm", "1") })
		<-time.After(time.Hour)
		o.toHub.mend()
		o.report("app", 0)
		o.within(90*time.Second, "the next report", func() error { return o.condition("work", fleet.ConditionProgressing, metav1.ConditionTrue) })
	})
}

// widgets are a kind that its users bring.
func widgets(plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: "Widget"}, Scope: scope,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
		},
	}
}

// A kind that goes is missed when its watch ends, although nothing tells of its objects. When it comes back with another name of
// its resource, and in another scope, it is found.
func TestKindComesBackChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		before, after := widgets("widgets", apiextensionsv1.NamespaceScoped), widgets("widgetry", apiextensionsv1.ClusterScoped)
		o.create(o.cluster, definition(before))
		o.create(o.hub, o.work("work", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"default","name":"w"}}`))
		applied := func() error { return o.condition("work", fleet.ConditionApplied, metav1.ConditionTrue) }
		o.within(10*time.Second, "applied", applied)
		if err := o.cluster.Delete(t.Context(), definition(before)); err != nil {
			t.Fatal(err)
		}
		o.within(20*time.Minute, "the kind is missed", func() error {
			w := &workv1.ManifestWork{}
			if err := o.hub.Get(t.Context(), client.ObjectKey{Namespace: outageCluster, Name: "work"}, w); err != nil {
				return err
			}
			for _, m := range w.Status.ResourceStatus.Manifests {
				if c := meta.FindStatusCondition(m.Conditions, fleet.ConditionApplied); c != nil && strings.Contains(c.Message, "has no kind Widget") {
					return nil
				}
			}
			return fmt.Errorf("the status is %+v", w.Status)
		})
		o.create(o.cluster, definition(after))
		o.within(2*time.Minute, "applied again", applied)
	})
}

// repairs is how many writes put right what driftAndRepair does: two objects, and the record of the UID of one.
const repairs = 3

// driftAndRepair changes what was applied, as a user does who knows nothing of the hub.
func (o *outage) driftAndRepair() {
	ctx := o.t.Context()
	if err := o.cluster.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm-7"}}); err != nil {
		o.t.Fatal(err)
	}
	o.within(time.Second, "deleted object is back", func() error { return o.value("cm-7", "1") })
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"key":"changed"}}`))
	if err := o.cluster.Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm-8"}}, patch); err != nil {
		o.t.Fatal(err)
	}
	o.within(time.Second, "changed object is as it was", func() error { return o.value("cm-8", "1") })
}

// changeTheHub is what its users do while the agent cannot see it.
func (o *outage) changeTheHub() {
	ctx := o.t.Context()
	w := &workv1.ManifestWork{}
	if err := o.hub.Get(ctx, client.ObjectKey{Namespace: outageCluster, Name: "work-0"}, w); err != nil {
		o.t.Fatal(err)
	}
	w.Spec.Workload.Manifests[0].Raw = []byte(configMapOf("cm-0", "2"))
	if err := o.hub.Update(ctx, w); err != nil {
		o.t.Fatal(err)
	}
	if err := o.hub.Delete(ctx, o.work("work-1")); err != nil {
		o.t.Fatal(err)
	}
	o.create(o.hub, o.work("new", configMapOf("cm-new", "1")))
}
