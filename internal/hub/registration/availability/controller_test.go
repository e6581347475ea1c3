package availability

import (
	"cmp"
	"context"
	"errors"
	"math"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// patience is how long a cluster with the default lease duration may be silent.
const patience = 5 * time.Minute

// hub is a controller of cluster1, whose lease was last renewed at noon.
type hub struct {
	client.Client
	*Controller
	clock *clocktesting.FakeClock
	due   time.Duration
}

func newHub(t *testing.T) *hub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coordinationv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	renewed := lease(noon)
	renewed.Name = "managed-cluster-lease"
	h := &hub{clock: clocktesting.NewFakeClock(noon)}
	h.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(renewed).WithStatusSubresource(&clusterv1.ManagedCluster{}).Build()
	h.Controller = New(h.Client, events.NewFakeRecorder(10), Options{Clock: h.clock, LeaseNamespace: "kube-system"})
	h.onLease(t.Context(), renewed)
	return h
}

func (h *hub) join(t *testing.T) {
	t.Helper()
	h.create(t)
	h.say(t, metav1.Condition{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue, Reason: "R"})
}

// create the cluster, which is to be accepted.
func (h *hub) create(t *testing.T) {
	t.Helper()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	if err := h.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}

// reconcile the cluster after a while, and check its availability.
func (h *hub) reconcile(t *testing.T, after time.Duration, available metav1.ConditionStatus) {
	t.Helper()
	h.clock.Step(after)
	request := ctrl.Request{NamespacedName: client.ObjectKey{Name: "cluster1"}}
	result, err := h.Reconcile(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	h.due = result.RequeueAfter
	cluster := &clusterv1.ManagedCluster{}
	if err := h.Get(t.Context(), request.NamespacedName, cluster); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	cond := meta.FindStatusCondition(cluster.Status.Conditions, "ManagedClusterConditionAvailable")
	if cond == nil {
		cond = &metav1.Condition{}
	}
	if cond.Status != available {
		t.Errorf("available is %q, want %q", cond.Status, available)
	}
}

// report is what the agent says.
func (h *hub) report(t *testing.T) {
	t.Helper()
	h.say(t, metav1.Condition{Type: "ManagedClusterConditionAvailable", Status: metav1.ConditionTrue, Reason: "R"})
}

func (h *hub) say(t *testing.T, cond metav1.Condition) {
	t.Helper()
	cluster := &clusterv1.ManagedCluster{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "cluster1"}, cluster); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&cluster.Status.Conditions, cond)
	if err := h.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}

// RG-21 RG-22: of a cluster that is about to be accepted, acceptance reports that the clocks are synced. One that stays like that is judged
// by its lease all the same.
func TestBeforeAcceptance(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.create(t)
	h.reconcile(t, 0, "")
	cluster := &clusterv1.ManagedCluster{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "cluster1"}, cluster); err != nil || len(cluster.Status.Conditions) > 0 {
		t.Errorf("conditions %v, %v", cluster.Status.Conditions, err)
	}
	if h.due != patience {
		t.Errorf("looked at again after %s, want %s", h.due, patience)
	}
	h.reconcile(t, h.due, metav1.ConditionUnknown)
}

// RG-21: a cluster that says it is available, and then dies before its next heartbeat, is judged again.
func TestLostAgainWithoutHeartbeat(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.join(t)
	h.reconcile(t, 0, "")
	h.reconcile(t, h.due, metav1.ConditionUnknown)
	h.report(t)
	if h.due != patience {
		t.Fatalf("looked at again after %s, want %s", h.due, patience)
	}
	h.reconcile(t, h.due, metav1.ConditionUnknown)
}

// RG-20 RG-21: a cluster whose lease is gone, as in a namespace that does not end, is not taken for lost: its agent says that it is there,
// and the two would contradict each other for ever. When there is a lease again, that counts from then on.
func TestWithoutLease(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.join(t)
	h.report(t)
	h.reconcile(t, 0, metav1.ConditionTrue)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "managed-cluster-lease"}}
	if err := h.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t, time.Hour, metav1.ConditionTrue)
	if h.due != 0 {
		t.Errorf("looked at again after %s", h.due)
	}
	lease.ResourceVersion, lease.Spec.RenewTime = "", new(metav1.NewMicroTime(h.clock.Now()))
	if err := h.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	h.onLease(t.Context(), lease)
	h.reconcile(t, time.Minute, metav1.ConditionTrue)
	h.reconcile(t, patience, metav1.ConditionUnknown)
}

// RG-21: the hub waits for heartbeats of any lease duration that the field takes.
func TestLongLeases(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int32]time.Duration{
		-1: patience, 0: patience, 1: 5 * time.Second, 86400: 5 * 24 * time.Hour,
		1_844_674_408: graceFactor * longestLeaseDuration, math.MaxInt32: graceFactor * longestLeaseDuration,
	} {
		cluster := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{LeaseDurationSeconds: seconds}}
		if got := graceOf(cluster); got != want {
			t.Errorf("%d seconds: %s, want %s", seconds, got, want)
		}
	}
}

// RG-21: a cluster that is deleted and made again while its lease stays as it is, is judged by that.
func TestLeaseOfTheOneBefore(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.reconcile(t, 0, "") // the cluster is gone
	h.join(t)
	h.reconcile(t, time.Minute, "")
	h.report(t)
	if h.due <= 0 || h.due > patience {
		t.Fatalf("looked at again after %s, want no more than %s", h.due, patience)
	}
	h.reconcile(t, h.due, metav1.ConditionUnknown)
}

// RG-21: a read that fails does not give a silent cluster more time.
func TestFailedReadGivesNoTime(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.join(t)
	h.reconcile(t, 0, "")
	h.clock.Step(patience)
	h.client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewTimeoutError("try again", 1)
		},
	})
	if _, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "cluster1"}}); err == nil {
		t.Error("there is no error to try again for")
	}
	h.client = h.Client
	h.reconcile(t, 0, metav1.ConditionUnknown)
}

// RG-21: a cluster is not lost while its heartbeats cannot be written, because nothing can. What the hub may not write says nothing.
func TestInterruptionOfTheHub(t *testing.T) {
	t.Parallel()
	full := apierrors.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded"))
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), ownLease, errors.New("no rule"))
	for name, test := range map[string]struct {
		refusal error
		during  metav1.ConditionStatus
	}{
		"a full storage":    {full, ""},
		"no connection":     {syscall.ECONNREFUSED, ""},
		"too many requests": {apierrors.NewTooManyRequestsError("later"), ""},
		"no right":          {forbidden, metav1.ConditionUnknown},
		"a webhook's no":    {apierrors.NewBadRequest("the webhook denied the request: a Lease needs a label"), metav1.ConditionUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			h.join(t)
			h.renewOwnOnce(t.Context())
			h.client = interceptor.NewClient(h.Client.(client.WithWatch), interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					return test.refusal
				},
			})
			h.clock.Step(patience)
			h.renewOwnOnce(t.Context())
			h.reconcile(t, patience, test.during)
			h.client = h.Client
			h.renewOwnOnce(t.Context())
			h.reconcile(t, 0, test.during)
			for range patience / ownInterval {
				h.clock.Step(ownInterval)
				h.renewOwnOnce(t.Context())
			}
			h.reconcile(t, 0, metav1.ConditionUnknown)
		})
	}
}

// RG-21: the hub renews its own Lease until it ends.
func TestOwnLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.Controller.clock = clock.RealClock{}
		ctx, cancel := context.WithTimeout(t.Context(), 2*ownInterval+time.Second)
		defer cancel()
		start := time.Now()
		if err := h.renewOwn(ctx); err != nil {
			t.Fatal(err)
		}
		own := &coordinationv1.Lease{}
		if err := h.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "capstan-hub-heartbeat"}, own); err != nil {
			t.Fatal(err)
		}
		if renewed := own.Spec.RenewTime; !renewed.Time.Equal(start.Add(2 * ownInterval)) {
			t.Errorf("last renewed at %s, begun at %s", renewed, start)
		}
	})
}

// RG-22: a heartbeat that waited for the hub, which stood still, does not make the clock of the cluster wrong, and neither does one that
// the hub learns of late. One that comes later does.
func TestHeartbeatThatWaited(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stands   time.Duration
		renewals int           // of the hub's own Lease, before the heartbeat comes
		written  time.Duration // before it comes
		sent     time.Duration // before it comes, by the clock of the cluster; zero stands for almost an hour
		want     metav1.ConditionStatus
	}{
		"the hub stood still":                   {time.Hour, 0, 0, 0, ""},
		"the hub stood still until then":        {time.Hour, 1, 0, 0, ""},
		"the hub stood still lately":            {time.Hour, 6, 0, 0, ""},
		"the hub stood still before":            {time.Hour, 7, 0, 0, metav1.ConditionFalse},
		"it stood still, and learns of it late": {time.Hour, 7, 2 * time.Minute, 0, ""},
		"it stood still, and learns late of a later one": {time.Hour, int(2 * patience / ownInterval), patience + time.Minute,
			patience + time.Minute, metav1.ConditionTrue},
		"the hub learns of it late":            {time.Second, 0, patience + time.Minute, patience + time.Minute, metav1.ConditionTrue},
		"the hub learns late of a wrong clock": {time.Second, 0, patience + time.Minute, 0, metav1.ConditionFalse},
		"the hub was there":                    {time.Second, 0, 0, 0, metav1.ConditionFalse},
		"its clock is set back":                {-time.Minute, 0, 0, 0, metav1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			h.join(t)
			h.renewOwnOnce(t.Context())
			h.clock.Step(test.stands)
			for i := range test.renewals {
				if i > 0 {
					h.clock.Step(ownInterval)
				}
				h.renewOwnOnce(t.Context())
			}
			waited := lease(h.clock.Now().Add(-cmp.Or(test.sent, time.Hour-time.Second)))
			waited.Name = "managed-cluster-lease"
			waited.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(metav1.NewTime(h.clock.Now().Add(-test.written)))}}
			h.onLease(t.Context(), waited)
			h.reconcile(t, 0, "")
			cluster := &clusterv1.ManagedCluster{}
			if err := h.Get(t.Context(), client.ObjectKey{Name: "cluster1"}, cluster); err != nil {
				t.Fatal(err)
			}
			synced := metav1.ConditionStatus("")
			if cond := meta.FindStatusCondition(cluster.Status.Conditions, "ManagedClusterConditionClockSynced"); cond != nil {
				synced = cond.Status
			}
			if synced != test.want {
				t.Errorf("the clocks are synced: %q, want %q", synced, test.want)
			}
		})
	}
}
