package accept_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
)

const (
	allOfCluster   = "open-cluster-management:managedcluster:c1"
	allWorks       = allOfCluster + ":work"
	remainingWorks = allOfCluster + ":remaining-works"
	cutOff         = "capstan.io/cut-off"
)

// judged is a cluster that the controller decides about as the test edits it.
type judged struct {
	client.Client
	controller *accept.Controller
}

func newJudged(t *testing.T) *judged {
	t.Helper()
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	api := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(cluster).WithStatusSubresource(cluster).Build()
	j := &judged{api, accept.New(api, api, events.NewFakeRecorder(100), accept.Options{Clock: clock.RealClock{}})}
	j.reconcile(t)
	return j
}

func (j *judged) reconcile(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := j.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "c1"}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// decide edits the cluster, as an administrator does.
func (j *judged) decide(t *testing.T, edit func(*clusterv1.ManagedCluster)) ctrl.Result {
	t.Helper()
	cluster := j.cluster(t)
	edit(cluster)
	if err := j.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return j.reconcile(t)
}

func (j *judged) cluster(t *testing.T) *clusterv1.ManagedCluster {
	t.Helper()
	cluster := &clusterv1.ManagedCluster{}
	if err := j.Get(t.Context(), client.ObjectKey{Name: "c1"}, cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

func denied(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }

func accepted(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true }

func (j *judged) add(t *testing.T, works ...string) {
	t.Helper()
	for _, name := range works {
		if err := j.Create(t.Context(), &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
}

func (j *judged) remove(t *testing.T, work string) {
	t.Helper()
	if err := j.Delete(t.Context(), &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: work}}); err != nil {
		t.Fatal(err)
	}
}

// rightsToWorks are all works, those by name, or none.
func (j *judged) rightsToWorks(t *testing.T) string {
	t.Helper()
	var rights []string
	if j.has(t, &rbacv1.RoleBinding{}, allWorks) {
		rights = append(rights, "all")
	}
	role := &rbacv1.Role{}
	if j.has(t, role, remainingWorks) != j.has(t, &rbacv1.RoleBinding{}, remainingWorks) {
		t.Error("of the role for remaining works and its binding there is only one")
	}
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "update", "patch"}, verb) {
				t.Errorf("a denied cluster may %s its works", verb)
			}
		}
		if len(rule.ResourceNames) == 0 {
			t.Errorf("a right to all works: %v", rule)
		}
		rights = append(rights, strings.Join(rule.ResourceNames, ","))
	}
	return strings.Join(slices.Compact(rights), " ")
}

func (j *judged) has(t *testing.T, o client.Object, name string) bool {
	t.Helper()
	err := j.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func (j *judged) expect(t *testing.T, rights string) {
	t.Helper()
	if got := j.rightsToWorks(t); got != rights {
		t.Errorf("it has rights to the works %q, want %q", got, rights)
	}
}

// "On denial: only the works that exist then, by name, without list or watch." An attacker that stays connected learns of no work that
// comes after, whatever it is called.
func TestDeniedClusterKeepsItsWorksByName(t *testing.T) {
	t.Parallel()
	j := newJudged(t)
	j.add(t, "a", "b")
	j.reconcile(t)
	j.expect(t, "all")
	if result := j.decide(t, denied); result.RequeueAfter == 0 {
		t.Error("nobody looks whether the works are gone")
	}
	j.expect(t, "a,b")
	j.add(t, "later")
	j.reconcile(t)
	j.expect(t, "a,b")
	j.remove(t, "a")
	j.reconcile(t)
	j.expect(t, "b")
	j.add(t, "a")
	j.reconcile(t)
	j.expect(t, "b")
	j.remove(t, "b")
	if result := j.reconcile(t); result.RequeueAfter != 0 {
		t.Error("works that it has nothing to do with are waited for")
	}
	j.expect(t, "")

	// Accepted and denied again, it is measured by the works that there are then.
	j.decide(t, accepted)
	j.expect(t, "all")
	j.decide(t, denied)
	j.expect(t, "a,later")
}

// A cluster that is accepted again before it is done has its rights back, and no others.
func TestDeniedClusterComesBack(t *testing.T) {
	t.Parallel()
	j := newJudged(t)
	j.add(t, "a")
	j.decide(t, denied)
	j.expect(t, "a")
	j.decide(t, accepted)
	j.expect(t, "all")
}

// "Agents of ours and unmodified OCM agents that are being detached still finish the removal": one that was denied before its cluster was
// deleted lists its works again, to see them being deleted.
func TestDeniedAndDeletedClusterFinishes(t *testing.T) {
	t.Parallel()
	j := newJudged(t)
	j.add(t, "a")
	j.decide(t, denied)
	if err := j.Delete(t.Context(), j.cluster(t)); err != nil {
		t.Fatal(err)
	}
	j.reconcile(t)
	j.expect(t, "all")
	j.remove(t, "a")
	j.reconcile(t)
	j.expect(t, "")
	if err := j.Get(t.Context(), client.ObjectKey{Name: "c1"}, &clusterv1.ManagedCluster{}); !apierrors.IsNotFound(err) {
		t.Errorf("the cluster: %v", err)
	}
}

// "Cuts off a compromised cluster in one command: denial, rights gone": nothing is left to it, not even what a denied one has.
func TestCutOffClusterHasNothing(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*clusterv1.ManagedCluster){"an accepted one": accepted, "a denied one": denied} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJudged(t)
			j.add(t, "a")
			j.decide(t, before)
			j.decide(t, func(c *clusterv1.ManagedCluster) {
				denied(c)
				c.Labels = map[string]string{cutOff: "true"}
			})
			j.expect(t, "")
			for _, o := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
				if err := j.Get(t.Context(), client.ObjectKey{Name: allOfCluster}, o); !apierrors.IsNotFound(err) {
					t.Errorf("it keeps %T: %v", o, err)
				}
			}
			if err := j.Delete(t.Context(), j.cluster(t)); err != nil {
				t.Fatal(err)
			}
			j.reconcile(t)
			j.expect(t, "")
		})
	}
}

// Acceptance takes the label away: the next denial is one of its own.
func TestAcceptedClusterIsNotCutOff(t *testing.T) {
	t.Parallel()
	j := newJudged(t)
	j.decide(t, func(c *clusterv1.ManagedCluster) {
		denied(c)
		c.Labels = map[string]string{cutOff: "true"}
	})
	j.decide(t, accepted)
	j.expect(t, "all")
	if at, is := j.cluster(t).Labels[cutOff]; is {
		t.Errorf("it is still marked as cut off: %s", at)
	}
}
