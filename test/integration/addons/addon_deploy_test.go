package addons

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

const (
	preDelete       = "addon.open-cluster-management.io/addon-pre-delete"
	hostedLocation  = "addon.open-cluster-management.io/hosted-manifest-location"
	hostingCluster  = "addon.open-cluster-management.io/hosting-cluster-name"
	deletionOrphan  = "addon.open-cluster-management.io/deletion-orphan"
	preDeleteHooks  = "HookManifestCompleted"
	hookTimeout     = "capstan.io/pre-delete-timeout"
	hooksUnfinished = "HookManifestIsNotCompleted"
)

// deployHook is a Job that runs before its add-on goes. One that fails finds no node, and does not wait for one.
func deployHook(namespace, name string, fails bool) *batchv1.Job {
	hook := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{preDelete: ""}}}
	hook.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "hook", Image: "example.com/hook:1"}}}
	if fails {
		hook.Spec.Template.Spec.NodeSelector = map[string]string{"example.com/no-node": "has-this"}
		hook.Spec.ActiveDeadlineSeconds = new(int64(1))
	}
	return hook
}

// ran counts the runs of Jobs in a namespace that came to a good end, from now on.
type ran struct {
	mu   sync.Mutex
	jobs map[string]bool
}

func watchHooks(t *testing.T, c client.WithWatch, namespace string) *ran {
	t.Helper()
	w, err := c.Watch(t.Context(), &batchv1.JobList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	r := &ran{jobs: map[string]bool{}}
	go func() {
		for event := range w.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok && job.Status.Succeeded > 0 {
				r.mu.Lock()
				r.jobs[job.Name] = true
				r.mu.Unlock()
			}
		}
	}()
	return r
}

func (r *ran) expect(t *testing.T, names ...string) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, name := range names {
			if !r.jobs[name] {
				return fmt.Errorf("the hook %s did not run", name)
			}
		}
		return nil
	})
}

func expectAbsent(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)); !apierrors.IsNotFound(err) {
		t.Errorf("%T %s is on the wrong cluster: %v", o, o.GetName(), err)
	}
}

// AF-15 AF-16: an add-on whose agent runs on another cluster, from before that cluster has joined until the add-on goes, with
// hooks on both.
func TestAddOnOnTwoClusters(t *testing.T) {
	t.Parallel()
	const cluster, host, name = "deploy-hosted", "deploy-host", "deploy-hosted"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	hosting := env.StartSandbox(t)
	on := hosting.Client(t)
	ns := framework.Namespace(t, m, cluster)
	framework.Namespace(t, on, ns)
	here, there := engineConfigMap(ns, "here", "1"), engineConfigMap(ns, "there", "1")
	a := newEngineAgent(name, here.DeepCopy(), framework.Annotated(there.DeepCopy(), hostedLocation, "hosting"),
		framework.Annotated(engineConfigMap(ns, "nowhere", "1"), hostedLocation, "none"),
		deployHook(ns, "hook-here", false), framework.Annotated(deployHook(ns, "hook-there", false), hostedLocation, "hosting"))
	a.options.HostingCluster = addon.AnnotatedHostingCluster
	a.options.Health.Mode = addon.HealthManifests
	runEngine(t, a)
	addOn := framework.Annotated(&addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}},
		hostingCluster, host)
	framework.Create(t, h, addOn)

	cond := awaitEngine(t, addOn, "HostingClusterValidity", metav1.ConditionFalse, "HostingClusterInvalid")
	if !strings.Contains(cond.Message, "There is no ManagedCluster "+host) {
		t.Errorf("message: %s", cond.Message)
	}
	framework.AwaitConfigMap(t, m, ns, "here", "1")
	env.Join(t, framework.Hub, hosting, host)
	awaitEngine(t, addOn, "HostingClusterValidity", metav1.ConditionTrue, "HostingClusterValid")
	awaitEngine(t, addOn, "HostingManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	awaitEngine(t, addOn, "Available", metav1.ConditionTrue, "WorkApplied")
	framework.AwaitConfigMap(t, on, ns, "there", "1")
	expectAbsent(t, m, there)
	expectAbsent(t, on, here)
	expectAbsent(t, m, engineConfigMap(ns, "nowhere", ""))
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: host, Name: "addon-" + name + "-deploy-hosting-" + cluster + "-0"}}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(work), work); err != nil {
		t.Fatal(err)
	}
	if len(work.OwnerReferences) > 0 || work.Labels["open-cluster-management.io/addon-namespace"] != cluster {
		t.Errorf("work: labels %v, owners %+v", work.Labels, work.OwnerReferences)
	}

	hooksHere, hooksThere := watchHooks(t, m, ns), watchHooks(t, on, ns)
	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, addOn)
	hooksHere.expect(t, "hook-here")
	hooksThere.expect(t, "hook-there")
	// Nothing waits any more for what was on the hosting cluster: it went before.
	expectAbsent(t, on, there)
	expectAbsent(t, h, work)
	expectAbsent(t, h, &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: host, Name: "addon-" + name + "-pre-delete-hosting-" +
		cluster}})
	framework.AwaitGone(t, m, here)
}

// AF-16, gap A6: with the hosting cluster, what is there of the add-on goes, and nothing holds the add-on for it.
func TestAddOnWithoutItsHost(t *testing.T) {
	t.Parallel()
	const cluster, host, name = "deploy-left", "deploy-leaving", "deploy-left"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	env.Join(t, framework.Hub, framework.Managed, host)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	a := newEngineAgent(name, engineConfigMap(ns, "here", "1"), framework.Annotated(engineConfigMap(ns, "there", "1"), hostedLocation, "hosting"),
		framework.Annotated(deployHook(ns, "hook", true), hostedLocation, "hosting"))
	a.options.HostingCluster = addon.AnnotatedHostingCluster
	runEngine(t, a)
	addOn := framework.Annotated(&addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}},
		hostingCluster, host)
	framework.Create(t, h, addOn)
	awaitEngine(t, addOn, "HostingManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	if len(addOn.Finalizers) != 2 {
		t.Errorf("finalizers: %v", addOn.Finalizers)
	}
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: host}}
	if err := h.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	awaitEngine(t, addOn, "HostingClusterValidity", metav1.ConditionFalse, "HostingClusterInvalid")
	framework.AwaitGone(t, h, mc)
	framework.AwaitGone(t, m, engineConfigMap(ns, "there", ""))
	framework.AwaitConfigMap(t, m, ns, "here", "1")
	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, addOn)
	framework.AwaitGone(t, m, engineConfigMap(ns, "here", ""))
}

// AF-15, AF-16: a hook that fails holds the add-on and says what to do, and that helps. What is marked stays.
func TestAddOnFailingHook(t *testing.T) {
	t.Parallel()
	const cluster, name = "deploy-fails", "deploy-fails"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	a := newEngineAgent(name, engineConfigMap(ns, "goes", "1"), framework.Annotated(engineConfigMap(ns, "stays", "1"), deletionOrphan, ""),
		deployHook(ns, "good", false), deployHook(ns, "bad", true))
	runEngine(t, a)
	addOn := installEngine(t, cluster, name)
	awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	hooks := watchHooks(t, m, ns)
	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		for _, text := range []string{"Job " + ns + "/bad", "failed", "delete ManifestWork " + cluster + "/addon-" + name + "-pre-delete",
			hookTimeout + "=0s"} {
			if c := meta.FindStatusCondition(addOn.Status.Conditions, preDeleteHooks); c == nil || c.Reason != hooksUnfinished ||
				!strings.Contains(c.Message, text) {
				return fmt.Errorf("condition %+v, want %q in it", c, text)
			}
		}
		return nil
	})
	hooks.expect(t, "good")
	framework.AwaitConfigMap(t, m, ns, "goes", "1")

	a.set(func(a *engineAgent) { a.objects[3] = deployHook(ns, "bad", false) })
	if err := h.Delete(t.Context(),
		&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "addon-" + name + "-pre-delete"}}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, addOn)
	hooks.expect(t, "bad")
	framework.AwaitGone(t, m, engineConfigMap(ns, "goes", ""))
	framework.AwaitGone(t, h, &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "addon-" + name + "-deploy-0"}})
	framework.AwaitConfigMap(t, m, ns, "stays", "1")
}

// Gap A6: hooks that nobody can run do not hold an add-on forever. When the agent is back, it cleans up.
func TestAddOnHooksNobodyRuns(t *testing.T) {
	t.Parallel()
	const cluster, name = "deploy-lost", "deploy-lost"
	agent := env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	a := newEngineAgent(name, engineConfigMap(ns, "goes", "1"), deployHook(ns, "hook", false))
	runEngine(t, a)
	addOn := framework.Annotated(&addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}},
		hookTimeout, "1h")
	framework.Create(t, h, addOn)
	awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	if c := awaitEngine(t, addOn, preDeleteHooks, metav1.ConditionFalse, hooksUnfinished); !strings.Contains(c.Message,
		"the hub removes the add-on all the same at ") {
		t.Errorf("message: %s", c.Message)
	}
	framework.MergePatch(t, h, addOn, fmt.Sprintf(`{"metadata":{"annotations":{%q:"1s"}}}`, hookTimeout))
	framework.AwaitGone(t, h, addOn)
	framework.AwaitConfigMap(t, m, ns, "goes", "1")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, engineConfigMap(ns, "goes", ""))
}

// Gap A6: the time limit of a ClusterManagementAddOn holds, too, when that is what is deleted.
func TestAddOnHooksWithoutCatalogue(t *testing.T) {
	t.Parallel()
	const cluster, name = "deploy-limit", "deploy-limit"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	runEngine(t, newEngineAgent(name, engineConfigMap(ns, "goes", "1"), deployHook(ns, "bad", true)))
	entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: name}}
	framework.MergePatch(t, h, entry, fmt.Sprintf(`{"metadata":{"annotations":{%q:"1s"}}}`, hookTimeout))
	addOn := installEngine(t, cluster, name)
	awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		if len(addOn.OwnerReferences) == 0 || addOn.Annotations["capstan.io/default-pre-delete-timeout"] != "1s" {
			return fmt.Errorf("owners %v, annotations %v", addOn.OwnerReferences, addOn.Annotations)
		}
		return nil
	})
	if err := h.Delete(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, addOn)
	framework.AwaitGone(t, m, engineConfigMap(ns, "goes", ""))
}

// AM-02, AF-15, A5: whatever is deleted first, the hooks run and nothing remains.
func TestAddOnDeletionOrders(t *testing.T) {
	t.Parallel()
	for order, doomed := range deletionOrders {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			d := deletion{cluster: "deploy-order-" + order, name: "deploy-order-" + order}
			d.install(t, func(t *testing.T, objects ...client.Object) { runEngine(t, newEngineAgent(d.name, objects...)) })
			d.carryOut(t, doomed(d.cluster, d.name), true)
		})
	}
}

// deletionOrders are what is deleted, and in which order.
var deletionOrders = map[string]func(cluster, name string) []client.Object{
	"cluster": func(cluster, _ string) []client.Object {
		return []client.Object{&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}}
	},
	"addon": func(cluster, name string) []client.Object {
		return []client.Object{&addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}}
	},
	"catalogue": func(_, name string) []client.Object {
		return []client.Object{&addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	},
	"all": func(cluster, name string) []client.Object {
		return []client.Object{
			&addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}},
			&addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}},
		}
	},
}

// deletion is that of an add-on of a ConfigMap and a hook.
type deletion struct {
	cluster, name string
	addOn         *addonv1beta1.ManagedClusterAddOn
	hooks         *ran
}

// install brings the add-on, which provide puts into the catalogue, to its cluster.
func (d *deletion) install(t *testing.T, provide func(t *testing.T, objects ...client.Object)) {
	t.Helper()
	env.Join(t, framework.Hub, framework.Managed, d.cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, d.cluster)
	provide(t, engineConfigMap(ns, "goes", "1"), deployHook(ns, "hook", false))
	d.addOn = installEngine(t, d.cluster, d.name)
	awaitEngine(t, d.addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(d.addOn), d.addOn); err != nil || len(d.addOn.OwnerReferences) > 0 {
			return err
		}
		return fmt.Errorf("the add-on is not owned by its ClusterManagementAddOn")
	})
	d.hooks = watchHooks(t, m, ns)
}

// carryOut deletes, and waits until all is gone.
func (d *deletion) carryOut(t *testing.T, doomed []client.Object, runsHooks bool) {
	t.Helper()
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	for _, o := range doomed {
		if err := h.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	framework.AwaitGone(t, h, d.addOn)
	if runsHooks {
		d.hooks.expect(t, "hook")
	}
	framework.AwaitGone(t, m, engineConfigMap(d.cluster, "goes", ""))
	for _, o := range doomed {
		framework.AwaitGone(t, h, o)
	}
	for _, suffix := range []string{"deploy-0", "pre-delete"} {
		framework.AwaitGone(t, h, &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: d.cluster,
			Name: "addon-" + d.name + "-" + suffix}})
	}
}

// AF-13: an object that outgrows its work moves to another one, and is not deleted on the cluster in between.
func TestAddOnMovesObjects(t *testing.T) {
	t.Parallel()
	const cluster, name = "deploy-moves", "deploy-moves"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, cluster)
	sized := func(name string, bytes int) *corev1.ConfigMap {
		return engineConfigMap(ns, name, strings.Repeat("x", bytes))
	}
	a := newEngineAgent(name, sized("grows", 20_000), sized("moves", 15_000), sized("large", 60_000))
	runEngine(t, a)
	addOn := installEngine(t, cluster, name)
	awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	expectManifests := func(want map[string]int) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			works := &workv1.ManifestWorkList{}
			if err := h.List(ctx, works, client.InNamespace(cluster),
				client.MatchingLabels{"open-cluster-management.io/addon-name": name}); err != nil {
				return err
			}
			got := map[string]int{}
			for _, w := range works.Items {
				got[strings.TrimPrefix(w.Name, "addon-"+name+"-")] = len(w.Spec.Workload.Manifests)
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("manifests %v, want %v", got, want)
			}
			return nil
		})
	}
	// The one that is too large has a work of its own.
	expectManifests(map[string]int{"deploy-0": 2, "deploy-1": 1})
	before := framework.AwaitConfigMap(t, m, ns, "moves", strings.Repeat("x", 15_000))

	a.set(func(a *engineAgent) { a.objects[0] = sized("grows", 35_000) })
	touchEngine(t, addOn, "example.com/attempt", "1")
	framework.AwaitConfigMap(t, m, ns, "grows", strings.Repeat("x", 35_000))
	expectManifests(map[string]int{"deploy-0": 1, "deploy-1": 1, "deploy-2": 1})
	awaitEngine(t, addOn, "ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied")
	env.Eventually(t, func(ctx context.Context) error {
		after := &corev1.ConfigMap{}
		if err := m.Get(ctx, client.ObjectKeyFromObject(before), after); err != nil {
			t.Fatal(err)
		}
		if after.UID != before.UID {
			t.Fatal("the object was deleted and created again")
		}
		if len(after.OwnerReferences) != 1 || after.OwnerReferences[0].UID == before.OwnerReferences[0].UID {
			return fmt.Errorf("owners %+v", after.OwnerReferences)
		}
		return nil
	})
}
