package registration

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// rightsOf are the objects that give the agent of a cluster its rights, and its lease.
func rightsOf(cluster string) []client.Object {
	global := metav1.ObjectMeta{Name: fleet.ManagedClusterClusterRole(cluster)}
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: global},
		&rbacv1.ClusterRoleBinding{ObjectMeta: global},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.RegistrationRoleBinding(cluster)}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.WorkRoleBinding(cluster)}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.ClusterNamespaceLease}},
	}
}

// contentOf is what a user has put into the namespace of a cluster. Nobody takes the finalizers off but the agent.
func contentOf(cluster string) []client.Object {
	held := framework.Work(cluster, cluster+"-work", framework.ConfigMap("default", cluster, "v"))
	held.Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: cluster + "-addon",
		Finalizers: []string{fleet.FinalizerAddOnPreDelete}}}
	return []client.Object{held, addOn}
}

// strip deletes a cluster and takes its finalizers off, so that it goes without any cleanup.
func strip(t *testing.T, admin client.Client, cluster string) {
	t.Helper()
	mc := framework.DeleteCluster(t, admin, cluster)
	if err := admin.Patch(t.Context(), mc, framework.Merge(`{"metadata":{"finalizers":null}}`)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, admin, mc)
}

// RG-16 RG-18 RG-44: a cluster that goes without its cleanup, because a user has taken its finalizers off, leaves nothing behind but its
// namespace, whether the hub runs at the time or not.
func TestAbandonedCluster(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "registration")
	const atOnce, later, heir, toCome = "abandoned-at-once", "abandoned-later", "abandoned-heir", "yet-to-come"
	admin := own.Client(t)
	for _, name := range []string{atOnce, later, heir} {
		framework.Create(t, admin, framework.AcceptedCluster(name))
		framework.AwaitHubAccepted(t, admin, name, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
		framework.Create(t, admin, contentOf(name)...)
	}
	start := time.Now()
	strip(t, admin, atOnce)
	for _, o := range append(rightsOf(atOnce), contentOf(atOnce)...) {
		framework.AwaitGone(t, admin, o)
	}
	t.Logf("nothing is left after %s", time.Since(start).Round(time.Millisecond))
	if err := admin.Get(t.Context(), client.ObjectKey{Name: atOnce}, &corev1.Namespace{}); err != nil {
		t.Errorf("the namespace: %v", err)
	}

	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	idle, err := env.NewHub(own.Dir, "none")
	if err != nil {
		t.Fatal(err)
	}
	env.StartServer(t, idle)
	admin = idle.Client(t)
	strip(t, admin, later)
	strip(t, admin, heir)
	framework.Create(t, admin, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: heir}}) // perhaps another one
	// A user prepares for a cluster of their own.
	framework.Create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: toCome,
		Labels: map[string]string{fleet.LabelClusterName: toCome}}})
	prepared := framework.Work(toCome, toCome, framework.ConfigMap("default", toCome, "v"))
	framework.Create(t, admin, prepared)
	if err := idle.Stop(); err != nil {
		t.Fatal(err)
	}
	again, err := env.NewHub(own.Dir, "registration")
	if err != nil {
		t.Fatal(err)
	}
	env.StartServer(t, again)
	admin = again.Client(t)
	for _, o := range append(rightsOf(later), contentOf(later)...) {
		framework.AwaitGone(t, admin, o)
	}
	// The work of the heir is waited for as that of a cluster that was denied.
	for _, o := range rightsOf(heir)[:3] {
		framework.AwaitGone(t, admin, o)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(prepared), prepared); err != nil || !prepared.DeletionTimestamp.IsZero() {
		t.Errorf("what was prepared for a cluster: %v, deleted at %s", err, prepared.DeletionTimestamp)
	}
}

// RG-18 RG-44: an agent that is still there undoes what is deleted because its cluster is gone.
func TestAbandonedClusterWithAgent(t *testing.T) {
	t.Parallel()
	name := "abandoned-agent-" + rand.String(5)
	admin, m := framework.Hub.Client(t), framework.Managed.Client(t)
	env.Join(t, framework.Hub, framework.Managed, name)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name, framework.ConfigMap(ns, "cm", "v"))
	framework.Create(t, admin, w)
	framework.AwaitCondition(t, admin, w, fleet.ConditionApplied, metav1.ConditionTrue)
	strip(t, admin, name)
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cm"}})
	for _, o := range append(rightsOf(name), w) {
		framework.AwaitGone(t, admin, o)
	}
}

// RG-18 RG-44 RG-60: the agent of a deleted cluster, whichever user created it, sees its add-ons and works being deleted, and then gone,
// before it loses its rights and its watches end.
func TestForeignAgentSeesTheEnd(t *testing.T) {
	t.Parallel()
	const name = "foreign-agent"
	framework.AcceptAll(t, name)
	admin, agent := framework.Hub.Client(t), framework.AsAgent(t, framework.Hub, name)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "hello",
		Finalizers: []string{"example.com/manager"}}}
	w := framework.Work(name, name, framework.ConfigMap("default", name, "v"))
	w.Finalizers = []string{"example.com/manager"}
	framework.Create(t, admin, addOn, w)
	framework.AwaitRights(t, agent, name, framework.AllRights)
	addOns, works := framework.Follow(t, agent, &addonv1beta1.ManagedClusterAddOnList{}, name),
		framework.Follow(t, agent, &workv1.ManifestWorkList{}, name)
	env.Eventually(t, func(ctx context.Context) error { // cleanup sees to the cluster
		mc := &clusterv1.ManagedCluster{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil || len(mc.Finalizers) < 2 {
			return errNotYetFinalized
		}
		return nil
	})
	framework.DeleteCluster(t, admin, name)
	expectDeleting(t, addOns)
	framework.AwaitRights(t, agent, name, framework.AllRights)
	if err := agent.Status().Patch(t.Context(), addOn.DeepCopy(), framework.Merge(`{}`)); err != nil {
		t.Errorf("report on an add-on that is being deleted: %v", err)
	}
	framework.MergePatch(t, admin, addOn, `{"metadata":{"finalizers":null}}`)
	expectGone(t, addOns)
	expectDeleting(t, works)
	if err := agent.List(t.Context(), &addonv1beta1.ManagedClusterAddOnList{}, client.InNamespace(name)); err != nil {
		t.Errorf("list add-ons while a work remains: %v", err)
	}
	framework.MergePatch(t, admin, w, `{"metadata":{"finalizers":null}}`)
	expectGone(t, works)
	framework.AwaitGone(t, admin, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
	framework.AwaitRights(t, agent, name, noRights)
	for _, events := range []<-chan watch.Event{addOns, works} {
		for event := range within(t, events) {
			t.Errorf("after the end: %s", event.Type)
		}
	}
}

var errNotYetFinalized = errors.New("the cluster has not got its finalizers yet")

// within yields the events of a watch until it ends, which must not take forever.
func within(t *testing.T, events <-chan watch.Event) iter.Seq[watch.Event] {
	t.Helper()
	return func(yield func(watch.Event) bool) {
		deadline := time.After(time.Minute)
		for {
			select {
			case event, open := <-events:
				if !open || !yield(event) {
					return
				}
			case <-deadline:
				t.Error("the watch goes on, and nothing happens")
				return
			}
		}
	}
}

func expectDeleting(t *testing.T, events <-chan watch.Event) {
	t.Helper()
	expectEvent(t, events, "an object that is being deleted", func(event watch.Event) bool {
		o, ok := event.Object.(client.Object)
		return ok && event.Type == watch.Modified && !o.GetDeletionTimestamp().IsZero()
	})
}

func expectGone(t *testing.T, events <-chan watch.Event) {
	t.Helper()
	expectEvent(t, events, "an object that is gone", func(event watch.Event) bool { return event.Type == watch.Deleted })
}

func expectEvent(t *testing.T, events <-chan watch.Event, what string, is func(watch.Event) bool) {
	t.Helper()
	for event := range within(t, events) {
		if is(event) {
			return
		}
	}
	t.Fatalf("the watch ended before it told of %s", what)
}
