package works

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// writes counts the writes of an object, from when it is watched.
type writes struct {
	began time.Time

	mu sync.Mutex
	n  int
}

// countWrites watches an object until the test ends. isWrite tells whether the agent has written it between two states, of which the first
// may be empty, and react is called with each state; it may be nil.
func countWrites(t *testing.T, c client.WithWatch, kind schema.GroupVersionKind, namespace, name string,
	isWrite func(before, after *unstructured.Unstructured) bool, react func(ctx context.Context, o *unstructured.Unstructured)) *writes {
	t.Helper()
	w := &writes{began: time.Now()}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	events, err := c.Watch(ctx, list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		t.Fatal(err)
	}
	watching.Go(func() {
		defer events.Stop()
		before := &unstructured.Unstructured{}
		for e := range events.ResultChan() {
			after, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type == watch.Deleted {
				continue
			}
			if isWrite(before, after) {
				w.add()
			}
			if react != nil {
				react(ctx, after)
			}
			before = after
		}
	})
	return w
}

func (w *writes) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
}

// await waits until there were so many writes, and fails the test if there are more than the agent may make in the time.
func (w *writes) await(t *testing.T, n int) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.n < n {
			return fmt.Errorf("%d writes, want %d", w.n, n)
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if most := 20 + 2*int(time.Since(w.began)/time.Minute); w.n > most {
		t.Errorf("%d writes, want %d at most", w.n, most)
	}
}

// awaitDisputed waits until a work is in dispute, and returns what it says of its first manifest. It is applied all the same, and has one
// event.
func awaitDisputed(t *testing.T, h client.Client, w *workv1.ManifestWork, reason string) (message string) {
	t.Helper()
	got := framework.AwaitCondition(t, h, w, "Disputed", metav1.ConditionTrue)
	cond := awaitManifestDisputed(t, h, got, reason)
	if !meta.IsStatusConditionTrue(got.Status.Conditions, "Applied") {
		t.Errorf("%s is not Applied: %+v", w.Name, got.Status.Conditions)
	}
	env.Eventually(t, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := h.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		var told []eventsv1.Event
		for _, e := range list.Items {
			if e.Regarding.UID == got.UID && e.Reason == "ManifestDisputed" {
				told = append(told, e)
			}
		}
		if len(told) != 1 || told[0].Series != nil || told[0].Type != corev1.EventTypeWarning ||
			!strings.Contains(told[0].Note, " in dispute: ") {
			return fmt.Errorf("events %+v, want one", told)
		}
		return nil
	})
	return cond.Message
}

func awaitManifestDisputed(t *testing.T, h client.Client, w *workv1.ManifestWork, reason string) (cond *metav1.Condition) {
	t.Helper()
	awaitWork(t, h, w, func(got *workv1.ManifestWork) error {
		cond = meta.FindStatusCondition(got.Status.ResourceStatus.Manifests[0].Conditions, "Disputed")
		if cond == nil || cond.Status != metav1.ConditionTrue || cond.Reason != reason {
			return fmt.Errorf("the manifest of %s has %+v, want reason %s", w.Name, cond, reason)
		}
		return nil
	})
	return cond
}

// awaitUndisputed changes the manifests of a work, and waits until they are applied and nothing is in dispute.
func awaitUndisputed(t *testing.T, h client.Client, w *workv1.ManifestWork, manifests ...string) {
	t.Helper()
	before := &workv1.ManifestWork{}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(w), before); err != nil {
		t.Fatal(err)
	}
	after := before.DeepCopy()
	after.Spec.Workload.Manifests = framework.RawManifests(manifests...)
	if err := h.Patch(t.Context(), after, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	got := framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	for _, conditions := range [][]metav1.Condition{got.Status.Conditions, got.Status.ResourceStatus.Manifests[0].Conditions} {
		if left := meta.FindStatusCondition(conditions, "Disputed"); left != nil {
			t.Errorf("%s is still in dispute: %+v", w.Name, left)
		}
	}
}

var deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// web is a Deployment with some of its fields.
func web(namespace, metadata, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":%q,"name":"web"%s},"spec":{%s
		"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},
		"spec":{"containers":[{"name":"web","image":"nginx"}]}}}}`, namespace, metadata, spec)
}

func replicasOf(o *unstructured.Unstructured) int64 {
	replicas, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	return replicas
}

// scaleWeb scales the Deployment web as another client does.
func scaleWeb(ctx context.Context, c client.Client, namespace string, replicas int) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	return c.Patch(ctx, deployment, patch, client.FieldOwner("autoscaler"))
}

// WK-17, WK-35: a change by hand is undone at once; a client that repeats it is reported, and is undone after longer and longer delays,
// until the work does not name the field any more.
func TestDisputedField(t *testing.T) {
	t.Parallel()
	const name = "disputed-field"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name, web(ns, "", `"replicas":2,`), framework.ConfigMap(ns, "other", "1"))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	if err := scaleWeb(t.Context(), m, ns, 3); err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, m, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}},
		func(d *appsv1.Deployment) error {
			if *d.Spec.Replicas != 2 {
				return fmt.Errorf("%d replicas", *d.Spec.Replicas)
			}
			return nil
		})
	got := framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	if cond := meta.FindStatusCondition(got.Status.Conditions, "Disputed"); cond != nil {
		t.Errorf("one change is a dispute: %+v", cond)
	}

	counted := countWrites(t, m, deploymentKind, ns, "web", func(before, after *unstructured.Unstructured) bool {
		return replicasOf(before) != 2 && replicasOf(after) == 2
	}, func(ctx context.Context, o *unstructured.Unstructured) {
		if replicasOf(o) == 2 {
			_ = scaleWeb(ctx, m, ns, 3) // a conflict comes with another event
		}
	})
	message := awaitDisputed(t, h, w, "FieldsChangedRepeatedly")
	if want := "Fields in dispute: spec.replicas. They were last written by autoscaler. "; !strings.Contains(message, want) {
		t.Errorf("%s, want %s", message, want)
	}
	counted.await(t, 5)
	framework.PatchData(t, m, ns, "other", "key", "drift")
	framework.AwaitConfigMap(t, m, ns, "other", "1")
	awaitUndisputed(t, h, w, web(ns, "", ""), framework.ConfigMap(ns, "other", "1"))
	framework.AwaitObject(t, m, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}},
		func(d *appsv1.Deployment) error {
			if *d.Spec.Replicas != 3 {
				return fmt.Errorf("%d replicas, want those of the autoscaler", *d.Spec.Replicas)
			}
			return nil
		})
	counted.await(t, 5)
}

// WK-17: works that want one object to be different share what may be written of it, and name each other.
func TestDisputedByTwoWorks(t *testing.T) {
	t.Parallel()
	for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			name := "disputed-by-two-" + strings.ToLower(string(strategy))
			env.Join(t, framework.Hub, framework.Managed, name)
			h, m := framework.Hub.Client(t), framework.Managed.Client(t)
			ns := framework.Namespace(t, m, name)
			one, two := framework.Work(name, name+"-1", web(ns, "", `"replicas":1,`)), framework.Work(name, name+"-2", web(ns, "", `"replicas":3,`))
			for _, w := range []*workv1.ManifestWork{one, two} {
				w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
					ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: ns, Name: "web"},
					UpdateStrategy:     &workv1.UpdateStrategy{Type: strategy},
				}}
			}
			counted := countWrites(t, m, deploymentKind, ns, "web", func(before, after *unstructured.Unstructured) bool {
				return before.GetGeneration() != after.GetGeneration()
			}, nil)
			framework.Create(t, h, one, two)
			for w, other := range map[*workv1.ManifestWork]string{one: two.Name, two: one.Name} {
				message := awaitDisputed(t, h, w, "FieldsChangedRepeatedly")
				if want := "Fields in dispute: spec.replicas. The object is also named by ManifestWork " + other; !strings.Contains(message, want) {
					t.Errorf("%s says %s, want %s", w.Name, message, want)
				}
			}
			counted.await(t, 7)
			awaitUndisputed(t, h, two, web(ns, "", `"replicas":1,`))
			framework.AwaitObject(t, m, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}},
				func(d *appsv1.Deployment) error {
					if *d.Spec.Replicas != 1 {
						return fmt.Errorf("%d replicas", *d.Spec.Replicas)
					}
					if n := owned(d); n != 2 {
						return fmt.Errorf("%d works own it", n)
					}
					return nil
				})
			counted.await(t, 7)
		})
	}
}

// WH-10: an object is in a work once, whatever its version. The hub refuses the second manifest where it knows that it is of the same
// object; the agent knows where namespaces count for nothing.
func TestObjectTwiceInWork(t *testing.T) {
	t.Parallel()
	const name = "object-twice"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	autoscaler := func(version string) string {
		return fmt.Sprintf(`{"apiVersion":"autoscaling/%s","kind":"HorizontalPodAutoscaler","metadata":{"namespace":%q,"name":"web"},
			"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}}`, version, ns)
	}
	if err := h.Create(t.Context(), framework.Work(name, "versions", autoscaler("v1"), autoscaler("v2"))); err == nil ||
		!strings.Contains(err.Error(), "duplicate of manifest 0") {
		t.Errorf("in two versions: %v", err)
	}
	role := func(namespace, verb string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"namespace":%q,"name":%q},
			"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":[%q]}]}`, namespace, name, verb)
	}
	w := framework.Work(name, "namespaces", role("a", "get"), role("b", "list"))
	framework.Create(t, h, w)
	w = framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionFalse)
	for i, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
		applied := meta.FindStatusCondition(w.Status.ResourceStatus.Manifests[i].Conditions, "Applied")
		if applied.Status != status || status == metav1.ConditionFalse && !strings.Contains(applied.Message, "manifest 0 of this work") {
			t.Errorf("of manifest %d it says %+v", i, applied)
		}
	}
	live := &rbacv1.ClusterRole{}
	if err := m.Get(t.Context(), client.ObjectKey{Name: name}, live); err != nil || live.Rules[0].Verbs[0] != "get" {
		t.Errorf("rules %v, %v", live.Rules, err)
	}
}

// WK-01, WK-17: what a controller has set on the cluster that a manifest was exported from is not applied, so nobody disputes it.
func TestExportedManifest(t *testing.T) {
	t.Parallel()
	const name, revision = "exported", "deployment.kubernetes.io/revision"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	exported := web(ns, `,"annotations":{"`+revision+`":"7"}`, "")
	w := framework.Work(name, name, exported)
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	change(t, h, w, func(spec *workv1.ManifestWorkSpec) {
		spec.Workload.Manifests = framework.RawManifests(strings.Replace(exported, "nginx", "nginx:2", 1))
	})
	applied := framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	deployed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
	framework.AwaitObject(t, m, deployed, func(d *appsv1.Deployment) error {
		if d.Annotations[revision] != "2" {
			return fmt.Errorf("its revision is %q", d.Annotations[revision])
		}
		return nil
	})
	if meta.FindStatusCondition(applied.Status.Conditions, "Disputed") != nil {
		t.Errorf("it is disputed: %+v", applied.Status.Conditions)
	}
}

// MR-04: what others keep changing in a work of a set is repaired after longer and longer delays. Works of other clusters are not delayed.
func TestDisputedWorkOfReplicaSet(t *testing.T) {
	t.Parallel()
	const name = "disputed-by-hub"
	h := framework.Hub.Client(t)
	clusters := framework.ClusterNamespaces(t, h, name, 2)
	framework.Decide(t, h, name, clusters...)
	set := framework.ReplicaSet(name, name, framework.SetManifest(name, "1"), name)
	valueOf := func(o *unstructured.Unstructured) string {
		manifests, _, _ := unstructured.NestedSlice(o.Object, "spec", "workload", "manifests")
		value, _, _ := unstructured.NestedString(manifests[0].(map[string]any), "data", "key")
		return value
	}
	framework.Create(t, h, set)
	framework.AwaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, DesiredTotal: 2, Updated: 2})
	works, err := framework.WorksOf(t.Context(), h, set)
	if err != nil {
		t.Fatal(err)
	}
	counted := countWrites(t, h, workv1.GroupVersion.WithKind("ManifestWork"), works[0].Namespace, works[0].Name,
		func(before, after *unstructured.Unstructured) bool {
			return before.GetGeneration() != after.GetGeneration() && valueOf(after) != "theirs"
		},
		func(ctx context.Context, o *unstructured.Unstructured) {
			if valueOf(o) == "theirs" {
				return
			}
			theirs := o.DeepCopy()
			manifest := map[string]any{}
			if err := json.Unmarshal([]byte(framework.SetManifest(name, "theirs")), &manifest); err != nil {
				t.Error(err)
			}
			_ = unstructured.SetNestedSlice(theirs.Object, []any{manifest}, "spec", "workload", "manifests")
			if err := h.Patch(ctx, theirs, client.MergeFrom(o)); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	counted.await(t, 12)
	framework.UpdateSet(t, h, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
		s.Spec.ManifestWorkTemplate.Workload.Manifests = framework.RawManifests(framework.SetManifest(name, "2"))
	})
	env.Eventually(t, func(ctx context.Context) error {
		other := &unstructured.Unstructured{}
		other.SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWork"))
		if err := h.Get(ctx, client.ObjectKeyFromObject(&works[1]), other); err != nil {
			return err
		}
		if value := valueOf(other); value != "2" {
			return fmt.Errorf("the work of the other cluster has %s", value)
		}
		return nil
	})
}
