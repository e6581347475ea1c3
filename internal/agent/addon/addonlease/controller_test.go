package addonlease

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	owner = types.NamespacedName{Namespace: "cluster1", Name: "hello"}
)

func leaseFor(seconds int32, renewed time.Time) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(renewed))
	if seconds > 0 {
		lease.Spec.LeaseDurationSeconds = ptr.To(seconds)
	}
	return lease
}

func newController(grace time.Duration) *Controller {
	return &Controller{Options: Options{Grace: grace}, seen: map[types.NamespacedName]renewal{}, missed: map[types.NamespacedName]time.Time{}}
}

// RG-63, gap A1: for how long a lease counts that is seen for the first time.
func TestGrace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		grace   time.Duration
		seconds int32
		renewed time.Time
		// lasts is how long after start it counts; zero or less is never.
		lasts time.Duration
	}{
		{"of an add-on of ours", 0, 15, start, 45 * time.Second},
		{"of the add-on framework", 0, 60, start, 3 * time.Minute},
		{"without a duration", 0, 0, start, 3 * time.Minute},
		{"a while ago", 0, 15, start.Add(-30 * time.Second), 15 * time.Second},
		{"too long ago", 0, 15, start.Add(-45 * time.Second), 0},
		{"in the future", 0, 15, start.Add(time.Hour), 45 * time.Second},
		{"never", 0, 15, time.Time{}, -1},
		{"with a grace for all", 10 * time.Second, 60, start, 10 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cond, end := newController(test.grace).conditionOf("hello", owner, leaseFor(test.seconds, test.renewed), true, start)
			if test.lasts <= 0 {
				if cond.Status != metav1.ConditionFalse || cond.Reason != "ManagedClusterAddOnLeaseUpdateStopped" || !end.IsZero() {
					t.Errorf("%+v until %s", cond, end)
				}
				return
			}
			if cond.Status != metav1.ConditionTrue || cond.Message != "hello add-on is available." || !end.Equal(start.Add(test.lasts)) {
				t.Errorf("%+v until %s, want %s", cond, end, start.Add(test.lasts))
			}
		})
	}
}

// RG-63: an agent that renews as the add-on framework does, and is now and then kept from it, is never taken for lost.
func TestRenewalsCountWhenTheyAreSeen(t *testing.T) {
	t.Parallel()
	c := newController(0)
	for now := start; now.Before(start.Add(time.Hour)); now = now.Add(150 * time.Second) { // two periods with all of the jitter
		if _, end := c.conditionOf("hello", owner, leaseFor(60, now), true, now); end.Before(now.Add(150 * time.Second)) {
			t.Fatalf("a lease renewed at %s counts until %s", now, end)
		}
	}
}

// RG-63: renewals count, whatever the clock of the agent says. What is seen twice is no renewal, nor is what a watch shows that is behind.
func TestClocksNeedNotAgree(t *testing.T) {
	t.Parallel()
	c, behind, ahead := newController(0), start.Add(-time.Hour), start.Add(time.Hour)
	version := func(version string, renewed time.Time) *coordinationv1.Lease {
		lease := leaseFor(15, renewed)
		lease.ResourceVersion = version
		return lease
	}
	steps := []struct {
		at    time.Duration
		lease *coordinationv1.Lease
		want  metav1.ConditionStatus
	}{
		{0, version("90", behind), metav1.ConditionFalse},
		{time.Second, version("91", behind.Add(time.Second)), metav1.ConditionTrue},
		{45 * time.Second, version("91", behind.Add(time.Second)), metav1.ConditionTrue},
		{46 * time.Second, version("91", behind.Add(time.Second)), metav1.ConditionFalse},
		{47 * time.Second, version("90", behind), metav1.ConditionFalse}, // the watch is behind
		{48 * time.Second, version("92", ahead), metav1.ConditionTrue},
		{95 * time.Second, version("92", ahead), metav1.ConditionFalse},
		{96 * time.Second, version("100", behind), metav1.ConditionTrue}, // the clock is set back
		{140 * time.Second, version("100", behind), metav1.ConditionTrue},
		{141 * time.Second, version("100", behind), metav1.ConditionFalse},
		{142 * time.Second, version("92", ahead), metav1.ConditionFalse}, // the watch is behind
		{143 * time.Second, version("100", behind), metav1.ConditionFalse},
		{144 * time.Second, version("101", behind.Add(time.Second)), metav1.ConditionTrue},
		{190 * time.Second, version("12", ahead.Add(time.Second)), metav1.ConditionTrue}, // the cluster is restored
		{236 * time.Second, version("13", ahead), metav1.ConditionTrue},
	}
	for _, step := range steps {
		if cond, _ := c.conditionOf("hello", owner, step.lease, true, start.Add(step.at)); cond.Status != step.want {
			t.Errorf("after %s: %+v, want %s", step.at, cond, step.want)
		}
	}
	another := leaseFor(15, start.Add(220*time.Second))
	another.UID = "2"
	if cond, end := c.conditionOf("hello", owner, another, true, start.Add(237*time.Second)); !end.Equal(start.Add(265 * time.Second)) {
		t.Errorf("a lease that was created again is %+v until %s", cond, end)
	}
	if cond, _ := c.conditionOf("hello", owner, nil, false, start); cond.Status != metav1.ConditionUnknown ||
		cond.Reason != "ManagedClusterAddOnLeaseNotFound" {
		t.Errorf("no lease is %+v", cond)
	}
}

// RG-63: that a new add-on has no lease is reported at once if there is to be one, and soon if it is not known whether there is.
func TestMissingLeaseOfNewAddOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode      addonv1beta1.HealthCheckMode
		condition string
		found     bool
		wait      time.Duration
	}{
		"not said":       {"", fleet.ConditionRegistrationApplied, false, modeTimeout},
		"there is one":   {"", "", true, 0},
		"by lease":       {addonv1beta1.HealthCheckModeLease, "", false, 0},
		"deployed":       {"", fleet.ConditionManifestApplied, false, 0},
		"something said": {"", fleet.ConditionAvailable, false, 0},
	} {
		c := newController(0)
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}
		addOn.Status.HealthCheck.Mode = test.mode
		addOn.Status.Conditions = []metav1.Condition{{Type: test.condition}}
		if wait := c.silence(addOn, test.found, start); wait != test.wait {
			t.Errorf("%s: silent for %s, want %s", name, wait, test.wait)
		}
		if wait := c.silence(addOn, test.found, start.Add(modeTimeout)); wait != 0 {
			t.Errorf("%s: silent for %s more", name, wait)
		}
	}
}

// serve is a cluster with nothing but leases, which stay as they are.
func serve(t *testing.T, leases ...coordinationv1.Lease) *rest.Config {
	t.Helper()
	if len(leases) == 0 {
		return serveBehind(t, nil)
	}
	return serveBehind(t, &leases[0], leases...)
}

// serveBehind is a cluster of which lists and watches return what there was. now is what is read; without it, reads are not answered.
func serveBehind(t *testing.T, now *coordinationv1.Lease, leases ...coordinationv1.Lease) *rest.Config {
	t.Helper()
	list, err := json.Marshal(coordinationv1.LeaseList{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items: leases,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusBadRequest) // then it is a list that they request
		case query.Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/leases/"+owner.Name) && now != nil:
			_ = json.NewEncoder(w).Encode(now)
		case strings.HasSuffix(r.URL.Path, "/leases/"+owner.Name):
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = w.Write(list)
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return &rest.Config{Host: server.URL}
}

// newHub has the add-on, and its own cluster and the one that hosts the agent with their leases.
func newHub(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, there ...coordinationv1.Lease) (*Controller, *clocktesting.FakeClock,
	workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := addonv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	clock, c := clocktesting.NewFakeClock(start), newController(0)
	c.Clock = clock
	c.hub = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(addOn).WithObjects(addOn).Build()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	var err error
	if c.managed, err = newLeases(serve(t, there...)); err == nil {
		c.hosting, err = newLeases(serve(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, leases := range []*leases{c.managed, c.hosting} {
		if err := leases.Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
	}
	return c, clock, queue
}

// reconcileAll reconciles until it is known whether there is a lease.
func reconcileAll(t *testing.T, c *Controller, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
	addOn *addonv1beta1.ManagedClusterAddOn) *metav1.Condition {
	t.Helper()
	for {
		if err := c.hub.Get(t.Context(), owner, addOn); err != nil {
			t.Fatal(err)
		}
		if said := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionAvailable); said != nil && said.Reason != "Before" {
			return said
		}
		key, _ := queue.Get()
		if _, err := c.Reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		queue.Done(key)
	}
}

// RG-63: Available of an add-on whose agent has a lease: its time is that at which its status changed.
func TestAvailable(t *testing.T) {
	t.Parallel()
	const isTrue, isFalse, isUnknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	earlier := metav1.NewTime(start.Add(-time.Hour).Local())
	lease := func(renewed time.Time) []coordinationv1.Lease {
		l := leaseFor(60, renewed)
		l.Namespace, l.Name = fleet.NamespaceAgentAddOn, owner.Name
		return []coordinationv1.Lease{*l}
	}
	for name, test := range map[string]struct {
		leases  []coordinationv1.Lease
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"renewed":     {lease(start), isTrue, "ManagedClusterAddOnLeaseUpdated", "hello add-on is available."},
		"not renewed": {lease(start.Add(-time.Hour)), isFalse, "ManagedClusterAddOnLeaseUpdateStopped", "hello add-on is not available"},
		"not there":   {nil, isUnknown, "ManagedClusterAddOnLeaseNotFound", "The status of hello add-on is unknown"},
	} {
		for _, before := range []metav1.ConditionStatus{"", isTrue, isFalse, isUnknown} {
			t.Run(name+"/"+string(before), func(t *testing.T) {
				t.Parallel()
				addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}
				addOn.Status.HealthCheck.Mode = addonv1beta1.HealthCheckModeLease
				if before != "" {
					addOn.Status.Conditions = []metav1.Condition{{Type: "Available", Status: before, Reason: "Before", LastTransitionTime: earlier}}
				}
				c, _, queue := newHub(t, addOn, test.leases...)
				queue.Add(reconcile.Request{NamespacedName: owner})
				at := start
				if test.status == before {
					at = earlier.Time
				}
				if got := reconcileAll(t, c, queue, addOn); got.Status != test.status || got.Reason != test.reason ||
					!strings.Contains(got.Message, test.message) || !got.LastTransitionTime.Time.Equal(at) {
					t.Errorf("got %+v, want %s %s %q at %s", got, test.status, test.reason, test.message, at)
				}
			})
		}
	}
}

// AM-03, RG-63: an add-on of which it is not known whether it is hosted has its lease on its own cluster, though that names a hosting
// cluster.
func TestHostingIsNotSaid(t *testing.T) {
	t.Parallel()
	here := leaseFor(60, start)
	here.Namespace, here.Name = fleet.NamespaceAgentAddOn, owner.Name
	for name, test := range map[string]struct {
		leases []coordinationv1.Lease
		want   string
	}{
		"with a lease":    {[]coordinationv1.Lease{*here}, fleet.ReasonAddOnLeaseUpdated},
		"without a lease": {nil, fleet.ReasonAddOnLeaseNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}
			metav1.SetMetaDataAnnotation(&addOn.ObjectMeta, fleet.AnnotationHostingClusterName, "host")
			c, clock, queue := newHub(t, addOn, test.leases...)
			if result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: owner}); err != nil || result.RequeueAfter != modeTimeout {
				t.Fatalf("%+v, %v", result, err)
			}
			clock.Step(modeTimeout)
			if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: owner}); err != nil {
				t.Fatal(err)
			}
			if available := reconcileAll(t, c, queue, addOn); available.Reason != test.want {
				t.Errorf("%+v, want %s", available, test.want)
			}
		})
	}
}

// RG-63: a read that fails does not end the watch of the lease.
func TestFailedReadKeepsTheWatch(t *testing.T) {
	t.Parallel()
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}
	addOn.Status.HealthCheck.Mode = addonv1beta1.HealthCheckModeLease
	lease := leaseFor(60, start)
	lease.Namespace, lease.Name = fleet.NamespaceAgentAddOn, owner.Name
	c, _, queue := newHub(t, addOn, *lease)
	queue.Add(reconcile.Request{NamespacedName: owner})
	reconcileAll(t, c, queue, addOn)
	c.hub = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewTimeoutError("try again", 1)
		},
	})
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: owner}); err == nil {
		t.Error("there is no error to try again for")
	}
	if _, found, known := c.managed.Get(owner, leaseOf(addOn)); !found || !known {
		t.Errorf("the lease is found: %t, and known: %t", found, known)
	}
}

// RG-63: that an add-on has not renewed its lease is not reported before the lease is read: an agent that was stopped for a while, or does
// not reach the cluster, knows nothing of renewals.
func TestWatchIsBehind(t *testing.T) {
	t.Parallel()
	const isTrue = metav1.ConditionTrue
	leaseAt := func(renewed time.Time) *coordinationv1.Lease {
		lease := leaseFor(60, renewed)
		lease.Namespace, lease.Name = fleet.NamespaceAgentAddOn, owner.Name
		return lease
	}
	for name, test := range map[string]struct {
		now  *coordinationv1.Lease
		want metav1.ConditionStatus
	}{
		"renewed meanwhile":           {leaseAt(start.Add(time.Hour)), isTrue},
		"not renewed":                 {leaseAt(start), metav1.ConditionFalse},
		"the cluster does not answer": {nil, isTrue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}
			addOn.Status.HealthCheck.Mode = addonv1beta1.HealthCheckModeLease
			c, clock, queue := newHub(t, addOn)
			var err error
			if c.managed, err = newLeases(serveBehind(t, test.now, *leaseAt(start))); err == nil {
				err = c.managed.Start(t.Context(), queue)
			}
			if err != nil {
				t.Fatal(err)
			}
			queue.Add(reconcile.Request{NamespacedName: owner})
			if got := reconcileAll(t, c, queue, addOn); got.Status != isTrue {
				t.Fatalf("before: %+v", got)
			}
			clock.Step(time.Hour)
			_, err = c.Reconcile(t.Context(), reconcile.Request{NamespacedName: owner})
			if (err != nil) != (test.now == nil) {
				t.Errorf("it is tried again for %v", err)
			}
			if err := c.hub.Get(t.Context(), owner, addOn); err != nil {
				t.Fatal(err)
			}
			if got := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionAvailable); got.Status != test.want {
				t.Errorf("got %+v, want %s", got, test.want)
			}
		})
	}
}
