package accept_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-16, RG-17, RG-18: what an agent has on the hub goes with its cluster: in order with one that is being deleted, and after the fact with
// one that has gone without any order. Nobody inherits it. What the agent needs to clean up, it keeps until that is done.
func TestWhatGoesWithCluster(t *testing.T) {
	t.Parallel()
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "c1", Name: name} }
	addOn, blocked := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: in("hello")}, &workv1.ManifestWork{ObjectMeta: in("w")}
	const registration, works, global, lease = "registration", "works", "global", "lease"
	const ofHub, ofCleanup = "cluster.open-cluster-management.io/api-resource-cleanup", "cluster.open-cluster-management.io/resource-cleanup"
	cluster := func(accepted bool, finalizers ...string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Finalizers: finalizers},
			Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: accepted}}
	}
	for name, test := range map[string]struct {
		cluster *clusterv1.ManagedCluster // nil for one that does not exist; one with finalizers is being deleted
		content []client.Object
		kept    bool // nobody empties the namespace
		stays   []string
	}{
		"deleted, and not emptied yet":            {cluster(true, ofHub, ofCleanup), nil, false, []string{registration, works, global, lease}},
		"deleted, and emptied":                    {cluster(true, ofHub), nil, false, nil},
		"deleted, with works that nobody deletes": {cluster(true, ofHub), []client.Object{blocked}, false, []string{works, global, lease}},
		"denied and deleted":                      {cluster(false, ofHub, ofCleanup), nil, false, nil},
		"denied and deleted, with works": {cluster(false, ofHub, ofCleanup), []client.Object{blocked}, false,
			[]string{works, global, lease}},
		"gone":                            {nil, nil, false, nil},
		"gone, with add-ons":              {nil, []client.Object{addOn}, false, []string{registration, lease}},
		"gone, with works":                {nil, []client.Object{blocked}, false, []string{works, lease}},
		"gone, with both":                 {nil, []client.Object{addOn, blocked}, false, []string{registration, works, lease}},
		"gone, with both, which are kept": {nil, []client.Object{addOn, blocked}, true, []string{lease}}, // it sees nothing being deleted
		"made again, and not accepted":    {cluster(false), nil, false, nil},
		// Of the works, it may finish with those that are there, by their names.
		"made again, with what was there": {cluster(false), []client.Object{addOn, blocked}, false, []string{lease}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const role = "open-cluster-management:managedcluster:"
			bindingOfWorks := in(role + "c1:work")
			bindingOfWorks.Finalizers = []string{"cluster.open-cluster-management.io/manifest-work-cleanup"}
			rights := map[string]client.Object{
				registration: &rbacv1.RoleBinding{ObjectMeta: in(role + "c1:registration")},
				works:        &rbacv1.RoleBinding{ObjectMeta: bindingOfWorks},
				global:       &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role + "c1"}},
				lease:        &coordinationv1.Lease{ObjectMeta: in("managed-cluster-lease")},
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
			builder := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithStatusSubresource(&clusterv1.ManagedCluster{}).WithObjects(namespace)
			for _, o := range rights {
				builder.WithObjects(o.DeepCopyObject().(client.Object))
			}
			for _, o := range test.content {
				builder.WithObjects(o.DeepCopyObject().(client.Object))
			}
			if test.cluster != nil {
				builder.WithObjects(test.cluster.DeepCopy())
			}
			c := builder.Build()
			if test.cluster != nil && len(test.cluster.Finalizers) > 0 {
				if err := c.Delete(t.Context(), test.cluster.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			controller := accept.New(c, c, events.NewFakeRecorder(10), accept.Options{KeepsContent: test.kept, Clock: clock.RealClock{}})
			for range 2 { // it makes no difference whether it looks again
				if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "c1"}}); err != nil {
					t.Fatal(err)
				}
			}
			for name, o := range rights {
				err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
				if client.IgnoreNotFound(err) != nil || (err == nil) != slices.Contains(test.stays, name) {
					t.Errorf("%s: %v; of all, %q should be there", name, err, test.stays)
				}
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil {
				t.Errorf("the namespace: %v", err)
			}
		})
	}
}

// The agent of a cluster that is gone lists its works for long enough to see them being deleted, and no longer, whatever keeps them: it
// learns of none that come after.
func TestAgentOfAClusterThatIsGoneStopsListing(t *testing.T) {
	t.Parallel()
	j := newJudged(t)
	now := clocktesting.NewFakeClock(time.Now())
	j.controller.Clock = now
	j.add(t, "a", "b")
	cluster := j.cluster(t)
	cluster.Finalizers = nil
	if err := errors.Join(j.Update(t.Context(), cluster), j.Delete(t.Context(), cluster)); err != nil {
		t.Fatal(err)
	}
	j.reconcile(t)
	j.expect(t, "all")
	now.Step(10 * time.Second)
	if result := j.reconcile(t); result.RequeueAfter == 0 {
		t.Error("nobody looks whether its time is over")
	}
	j.expect(t, "all")
	now.Step(6 * time.Second)
	j.reconcile(t)
	j.expect(t, "a,b")
	j.add(t, "later")
	j.remove(t, "a")
	j.reconcile(t)
	j.expect(t, "b")
	j.remove(t, "b")
	if result := j.reconcile(t); result.RequeueAfter != 0 {
		t.Error("works that it has nothing to do with are waited for")
	}
	j.expect(t, "")
}

// RG-18, RG-44: without the gate ResourceCleanup nobody deletes the works of a cluster that is being deleted, and the cluster says that it
// waits for that.
func TestDeletionWaitsForWorksThatAreKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kept     bool
		accepted bool
		works    []string
		says     string // nothing of an empty one, as the cluster is gone, or another controller says it
	}{
		"kept":           {true, true, []string{"web", "api"}, "waits for 2 works in the namespace c1: api, web."},
		"kept, denied":   {true, false, []string{"web"}, "capstan delete work NAME --clusters c1 --force"},
		"kept, none":     {true, true, nil, ""},
		"emptied":        {false, true, []string{"web"}, ""},
		"emptied, none":  {false, false, nil, ""},
		"emptied denied": {false, false, []string{"web"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Finalizers: []string{fleet.FinalizerManagedCluster}},
				Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: test.accepted}}
			builder := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(cluster).WithStatusSubresource(cluster)
			for _, work := range test.works {
				builder.WithObjects(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: work}})
			}
			c := builder.Build()
			if err := c.Delete(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			controller := accept.New(c, c, events.NewFakeRecorder(10), accept.Options{KeepsContent: test.kept, Clock: clock.RealClock{}})
			result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "c1"}})
			if err != nil {
				t.Fatal(err)
			}
			err = c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster)
			if stays := len(test.works) > 0; client.IgnoreNotFound(err) != nil || (err == nil) != stays || (result.RequeueAfter > 0) != stays {
				t.Fatalf("%v, %+v", err, result)
			}
			condition := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionDeleting)
			if test.says == "" {
				if err == nil && condition != nil {
					t.Errorf("it says %+v", condition)
				}
				return
			}
			if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != fleet.ReasonResourceRemaining ||
				!strings.Contains(condition.Message, test.says) {
				t.Errorf("it says %+v, want %q", condition, test.says)
			}
		})
	}
}
