package managednamespace

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// hubHash is that of the hub of all tests here.
var hubHash = fleet.HubHash("https://hub.example")

// bench is a hub with managed clusters, whose agents all run on one cluster.
type bench struct {
	*testing.T
	hub, managed client.Client
}

func newBench(t *testing.T, clusters ...string) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1.ManagedCluster{})
	for _, name := range clusters {
		joined := metav1.Condition{Type: fleet.ConditionJoined, Status: metav1.ConditionTrue, Reason: fleet.ReasonManagedClusterJoined}
		hub.WithObjects(&clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
			Status:     clusterv1.ManagedClusterStatus{Conditions: []metav1.Condition{joined}},
		})
	}
	return &bench{T: t, hub: hub.Build(), managed: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()}
}

// want writes which namespaces the sets of the hub want on the cluster.
func (b *bench) want(cluster string, namespaces ...string) {
	b.Helper()
	mc := b.cluster(cluster)
	mc.Status.ManagedNamespaces = nil
	for _, name := range namespaces {
		mc.Status.ManagedNamespaces = append(mc.Status.ManagedNamespaces, clusterv1.ClusterSetManagedNamespaceStatus{
			Name: name, ClusterSet: "set1",
		})
	}
	if err := b.hub.Status().Update(b.Context(), mc); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) cluster(name string) *clusterv1.ManagedCluster {
	b.Helper()
	mc := &clusterv1.ManagedCluster{}
	if err := b.hub.Get(b.Context(), client.ObjectKey{Name: name}, mc); err != nil {
		b.Fatal(err)
	}
	return mc
}

// reconcile has the agent of a cluster look once and returns the events that it recorded.
func (b *bench) reconcile(cluster string) []string {
	b.Helper()
	recorder := events.NewFakeRecorder(10)
	c := New(b.hub, b.managed, b.managed, Options{
		Cluster: cluster, HubHash: hubHash, Recorder: recorder, Clock: clocktesting.NewFakeClock(time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)),
	})
	if _, err := c.Reconcile(b.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: cluster}}); err != nil {
		b.Fatal(err)
	}
	close(recorder.Events)
	var recorded []string
	for event := range recorder.Events {
		recorded = append(recorded, event)
	}
	return recorded
}

func (b *bench) label(want string) {
	b.Helper()
	ns := &corev1.Namespace{}
	if err := b.managed.Get(b.Context(), client.ObjectKey{Name: "ns1"}, ns); err != nil {
		b.Fatal(err)
	}
	if got := ns.Labels[fleet.ManagedNamespaceLabel(hubHash)]; got != want {
		b.Errorf("the label of Namespace ns1 is %q, want %q", got, want)
	}
}

// RG-43: a namespace is made, reported, and stays when no set wants it any more.
func TestLifeOfANamespace(t *testing.T) {
	t.Parallel()
	b := newBench(t, "c1")
	b.want("c1", "ns1")
	if recorded := b.reconcile("c1"); len(recorded) != 1 || recorded[0] != "Normal NamespaceApplied The namespace ns1 is on the cluster" {
		t.Errorf("events %q", recorded)
	}
	b.label(labelManaged)
	cond := meta.FindStatusCondition(b.cluster("c1").Status.ManagedNamespaces[0].Conditions, fleet.ConditionNamespaceAvailable)
	if cond == nil || cond.Status != metav1.ConditionTrue || cond.Reason != fleet.ReasonNamespaceApplied {
		t.Errorf("condition %+v", cond)
	}
	if recorded := b.reconcile("c1"); recorded != nil {
		t.Errorf("events of what is done: %q", recorded)
	}
	b.want("c1")
	if recorded := b.reconcile("c1"); len(recorded) != 1 ||
		recorded[0] != "Normal NamespaceUnmanaged No set wants the namespace ns1 any more; it stays on the cluster" {
		t.Errorf("events %q", recorded)
	}
	b.label(labelReleased)
}

// RG-43: of two managed clusters of one hub that are the same cluster, one does not undo what the other does; when the first does
// not want a namespace any more, the second has it.
func TestTwoAgentsOnACluster(t *testing.T) {
	t.Parallel()
	b := newBench(t, "c1", "c2")
	b.want("c1", "ns1")
	b.reconcile("c1")
	if recorded := b.reconcile("c2"); recorded != nil {
		t.Errorf("events of an agent with nothing to do: %q", recorded)
	}
	b.label(labelManaged)
	b.want("c2", "ns1")
	b.reconcile("c2")
	b.want("c1")
	b.reconcile("c1")
	b.label(labelReleased)
	b.reconcile("c2")
	b.label(labelManaged)
	if recorded := b.reconcile("c1"); recorded != nil {
		t.Errorf("events of an agent with nothing to do: %q", recorded)
	}
	b.label(labelManaged)
}

// RG-43: a namespace that was labelled without a word of who did it is the agent's that finds it.
func TestLabelWithoutOwner(t *testing.T) {
	t.Parallel()
	b := newBench(t, "c1")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns1",
		Labels: map[string]string{fleet.ManagedNamespaceLabel(hubHash): labelManaged}}}
	if err := b.managed.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	b.reconcile("c1")
	b.label(labelReleased)
}
