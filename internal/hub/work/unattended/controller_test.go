package unattended

import (
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newHub(t *testing.T, objects ...client.Object) (client.Client, *Controller) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, workv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&workv1.ManifestWork{}).Build()
	return c, New(c, Options{Clock: clocktesting.NewFakePassiveClock(now)})
}

func cluster(available metav1.ConditionStatus, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Finalizers: []string{fleet.FinalizerManagedCluster}},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	c.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionClusterAvailable, Status: available}}
	for _, do := range change {
		do(c)
	}
	return c
}

func denied(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }

func cutOff(c *clusterv1.ManagedCluster) {
	denied(c)
	c.Labels = map[string]string{fleet.LabelCutOff: fleet.LabelTrue}
}

func deleted(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = &metav1.Time{Time: now} }

func work(ago time.Duration, finalizers ...string) *workv1.ManifestWork {
	return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "web", Finalizers: finalizers,
		DeletionTimestamp: &metav1.Time{Time: now.Add(-ago)}}}
}

// WK-14: a work whose agent is not there says what its deletion waits for, and the way out; that of an agent that is there says it itself.
func TestDeleting(t *testing.T) {
	t.Parallel()
	const ofAgent, ofOthers = fleet.FinalizerManifestWorkCleanup, "example.com/stay"
	for name, test := range map[string]struct {
		cluster *clusterv1.ManagedCluster // nil for none
		work    *workv1.ManifestWork
		says    string
		again   time.Duration
	}{
		"the agent is there":       {cluster(metav1.ConditionTrue), work(time.Hour, ofAgent), "", 0},
		"the agent is gone":        {cluster(metav1.ConditionUnknown), work(time.Hour, ofAgent), "c1, which is not available.", 0},
		"its API server is gone":   {cluster(metav1.ConditionFalse), work(time.Hour, ofAgent), "c1, which is not available.", 0},
		"it has just been deleted": {cluster(metav1.ConditionUnknown), work(10*time.Second, ofAgent), "", 50 * time.Second},
		"denied":                   {cluster(metav1.ConditionUnknown, denied), work(time.Hour, ofAgent), "c1, which is denied:", 0},
		"cut off":                  {cluster(metav1.ConditionTrue, cutOff), work(time.Hour, ofAgent), "c1, which is cut off:", 0},
		"being deleted":            {cluster(metav1.ConditionUnknown, deleted), work(time.Hour, ofAgent), "", 0},
		"no cluster":               {nil, work(time.Hour, ofAgent), "c1, which does not exist on the hub.", 0},
		"held by others":           {cluster(metav1.ConditionUnknown), work(time.Hour, ofOthers), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []client.Object{test.work}
			if test.cluster != nil {
				objects = append(objects, test.cluster)
			}
			c, controller := newHub(t, objects...)
			result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(test.work)})
			if err != nil || result.RequeueAfter != test.again {
				t.Errorf("%+v, %v", result, err)
			}
			got := &workv1.ManifestWork{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(test.work), got); err != nil {
				t.Fatal(err)
			}
			condition := meta.FindStatusCondition(got.Status.Conditions, "Deleting")
			if test.says == "" {
				if condition != nil {
					t.Errorf("it says %+v", condition)
				}
				return
			}
			if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != "WorkDeleting" ||
				!strings.Contains(condition.Message, test.says) ||
				!strings.Contains(condition.Message, "capstan delete work web --clusters c1 --force") {
				t.Fatalf("it says %+v, want %q", condition, test.says)
			}
			deleteByForce(t, c, condition.Message)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(test.work), got); !apierrors.IsNotFound(err) {
				t.Errorf("after the advice: %v, finalizers %v", err, got.Finalizers)
			}
		})
	}
}

// deleteByForce does what a message advises to do by the command line, which takes the finalizers off.
func deleteByForce(t *testing.T, c client.Client, message string) {
	t.Helper()
	advised := regexp.MustCompile(`capstan delete work (\S+) --clusters (\S+) --force`).FindStringSubmatch(message)
	if advised == nil {
		t.Fatalf("it advises no command: %s", message)
	}
	found := &workv1.ManifestWork{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: advised[2], Name: advised[1]}, found); err != nil {
		t.Fatal(err)
	}
	found.Finalizers = nil
	if err := c.Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
}

// WK-14: works that are being deleted are looked at when their agent comes or goes, or loses its rights.
func TestAgentComesAndGoes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after *clusterv1.ManagedCluster
		want          bool
	}{
		"goes":        {cluster(metav1.ConditionTrue), cluster(metav1.ConditionUnknown), true},
		"stays away":  {cluster(metav1.ConditionFalse), cluster(metav1.ConditionUnknown), false},
		"is denied":   {cluster(metav1.ConditionTrue), cluster(metav1.ConditionTrue, denied), true},
		"is cut off":  {cluster(metav1.ConditionTrue, denied), cluster(metav1.ConditionTrue, cutOff), true},
		"comes back":  {cluster(metav1.ConditionUnknown), cluster(metav1.ConditionTrue), true},
		"still there": {cluster(metav1.ConditionTrue), cluster(metav1.ConditionTrue), false},
	} {
		if got := agentChanged().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	other := work(time.Hour, "example.com/stay")
	other.Name = "other"
	lives := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "lives",
		Finalizers: []string{fleet.FinalizerManifestWorkCleanup}}}
	_, controller := newHub(t, work(time.Hour, fleet.FinalizerManifestWorkCleanup), other, lives)
	if got := controller.worksOf(t.Context(), cluster(metav1.ConditionUnknown)); len(got) != 1 || got[0].Name != "web" {
		t.Errorf("looks at %v", got)
	}
}

// WK-14: what an agent writes that is there after all does not wake the hub, or the two would write without end. What the hub has said goes
// when the agent is there again, and what an agent has said stays.
func TestWordOfAgent(t *testing.T) {
	t.Parallel()
	waiting := work(time.Hour, fleet.FinalizerManifestWorkCleanup)
	lives := waiting.DeepCopy()
	lives.DeletionTimestamp = nil
	said := waiting.DeepCopy()
	said.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionDeleting, Status: metav1.ConditionTrue, Message: "of the agent"}}
	predicate := startsWaiting()
	if predicate.Update(event.UpdateEvent{ObjectOld: waiting, ObjectNew: said}) {
		t.Error("the hub looks at what the agent says")
	}
	if !predicate.Update(event.UpdateEvent{ObjectOld: lives, ObjectNew: waiting}) || !predicate.Create(event.CreateEvent{Object: waiting}) ||
		predicate.Create(event.CreateEvent{Object: lives}) {
		t.Error("the hub does not look at works that begin to wait, and no others")
	}
	back := waiting.DeepCopy()
	back.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionDeleting, Status: metav1.ConditionTrue,
		Message: messagePrefix + "c1, which is not available."}}
	for name, test := range map[string]struct {
		work *workv1.ManifestWork
		want bool
	}{"of the agent": {said, true}, "of the hub": {back, false}} {
		c, controller := newHub(t, test.work, cluster(metav1.ConditionTrue))
		if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(test.work)}); err != nil {
			t.Fatal(err)
		}
		got := &workv1.ManifestWork{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(test.work), got); err != nil {
			t.Fatal(err)
		}
		if stays := meta.FindStatusCondition(got.Status.Conditions, "Deleting") != nil; stays != test.want {
			t.Errorf("%s: the condition stays: %t", name, stays)
		}
	}
}
