package works

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// config is the manifestConfig of a resource.
func config(group, resource, namespace, name string, strategy workv1.UpdateStrategy) workv1.ManifestConfigOption {
	return workv1.ManifestConfigOption{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: resource, Namespace: namespace, Name: name},
		UpdateStrategy:     &strategy,
	}
}

func serverSide(c workv1.ServerSideApplyConfig) workv1.UpdateStrategy {
	return workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: &c}
}

// change changes the spec of a work.
func change(t *testing.T, c client.Client, w *workv1.ManifestWork, f func(*workv1.ManifestWorkSpec)) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(w), w); err != nil {
			return err
		}
		before := w.DeepCopy()
		f(&w.Spec)
		return c.Patch(ctx, w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}

// awaitManifest waits until the condition Applied of a manifest has the status and a message with the words.
func awaitManifest(t *testing.T, c client.Client, w *workv1.ManifestWork, ordinal int, status metav1.ConditionStatus,
	words string) *metav1.Condition {
	t.Helper()
	var applied *metav1.Condition
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(w), w); err != nil {
			return err
		}
		if len(w.Status.ResourceStatus.Manifests) <= ordinal {
			return fmt.Errorf("there is no status of manifest %d", ordinal)
		}
		applied = meta.FindStatusCondition(w.Status.ResourceStatus.Manifests[ordinal].Conditions, "Applied")
		if applied == nil || applied.Status != status || applied.ObservedGeneration != w.Generation || !strings.Contains(applied.Message, words) {
			return fmt.Errorf("Applied of manifest %d is %+v, want %s with %q", ordinal, applied, status, words)
		}
		return nil
	})
	return applied
}

// owned tells by how many works an object is owned.
func owned(o client.Object) int { return len(o.GetOwnerReferences()) }

// WK-06 WK-09 WK-10: CreateOnly makes what is missing and leaves what is there; ReadOnly writes nothing and owns nothing.
func TestCreateOnlyAndReadOnly(t *testing.T) {
	t.Parallel()
	const name = "create-only"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	framework.Create(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "there"},
		Data: map[string]string{"key": "theirs"}})
	framework.Create(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "read"},
		Data: map[string]string{"key": "theirs"}})
	w := framework.Work(name, name, framework.ConfigMap(ns, "there", "ours"), framework.ConfigMap(ns, "made", "ours"), framework.ConfigMap(ns, "read", "ours"),
		framework.ConfigMap(ns, "read-missing", "ours"))
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{
		config("", "configmaps", ns, "read*", workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}),
		config("", "configmaps", "*", "*", workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}),
	}
	framework.Create(t, h, w)
	for ordinal := range 3 {
		awaitManifest(t, h, w, ordinal, metav1.ConditionTrue, "")
	}
	awaitManifest(t, h, w, 3, metav1.ConditionFalse, "does not exist; under the update strategy ReadOnly")
	if n := owned(framework.AwaitConfigMap(t, m, ns, "there", "theirs")); n != 1 {
		t.Errorf("what was there has %d owners", n)
	}
	if n := owned(framework.AwaitConfigMap(t, m, ns, "read", "theirs")); n != 0 {
		t.Errorf("what is only read has %d owners", n)
	}
	framework.PatchData(t, m, ns, "made", "key", "changed")
	cm := framework.AwaitConfigMap(t, m, ns, "made", "changed")
	if err := m.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	framework.AwaitConfigMap(t, m, ns, "made", "ours") // only now: the change was left alone
	framework.Create(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "read-missing"}})
	awaitManifest(t, h, w, 3, metav1.ConditionTrue, "")

	// What was owned and is now only read is let go of.
	change(t, h, w, func(s *workv1.ManifestWorkSpec) {
		s.ManifestConfigs[1].UpdateStrategy.Type = workv1.UpdateStrategyTypeReadOnly
	})
	awaitManifest(t, h, w, 0, metav1.ConditionTrue, "")
	if n := owned(framework.AwaitConfigMap(t, m, ns, "there", "theirs")); n != 0 {
		t.Errorf("what is now only read has %d owners", n)
	}
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, w)
	for _, name := range []string{"there", "read"} {
		framework.AwaitConfigMap(t, m, ns, name, "theirs")
	}
	framework.AwaitConfigMap(t, m, ns, "made", "ours")
}

// WK-07, gap W21: a conflict is reported with who is in the way and what to do, is settled as soon as it is over, and force
// takes fields over.
func TestServerSideApply(t *testing.T) {
	t.Parallel()
	const name = "server-side"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	framework.Create(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "both"},
		Data: map[string]string{"key": "theirs", "more": "theirs"}})
	w := framework.Work(name, name, framework.ConfigMap(ns, "both", "ours"), framework.ConfigMap(ns, "made", "ours"))
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{config("", "configmaps", ns, "*",
		serverSide(workv1.ServerSideApplyConfig{FieldManager: "work-agent-test"}))}
	framework.Create(t, h, w)
	awaitManifest(t, h, w, 0, metav1.ConditionFalse, ".data.key (conflict with ")
	awaitManifest(t, h, w, 0, metav1.ConditionFalse, "set serverSideApply.force")
	awaitManifest(t, h, w, 1, metav1.ConditionTrue, "")
	made := framework.AwaitConfigMap(t, m, ns, "made", "ours")
	if owned(made) != 1 || !slices.ContainsFunc(made.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == "work-agent-test" && e.Operation == metav1.ManagedFieldsOperationApply
	}) {
		t.Errorf("owners %v, managers %v", made.OwnerReferences, made.ManagedFields)
	}
	// Of one that is made, drift is repaired, and what others add stays.
	force := client.RawPatch(types.MergePatchType, []byte(`{"data":{"key":"drift","more":"of it"}}`))
	if err := m.Patch(t.Context(), made, force, client.FieldOwner("work-agent-test")); err != nil {
		t.Fatal(err)
	}
	awaitManifest(t, h, w, 1, metav1.ConditionFalse, ".data.key")
	// They give in.
	framework.PatchData(t, m, ns, "both", "key", "ours")
	awaitManifest(t, h, w, 0, metav1.ConditionTrue, "")
	change(t, h, w, func(s *workv1.ManifestWorkSpec) { s.ManifestConfigs[0].UpdateStrategy.ServerSideApply.Force = true })
	framework.AwaitData(t, m, ns, "made", map[string]string{"key": "ours", "more": "of it"})
	framework.PatchData(t, m, ns, "both", "key", "drift")
	framework.AwaitData(t, m, ns, "both", map[string]string{"key": "ours", "more": "theirs"})
	awaitManifest(t, h, w, 0, metav1.ConditionTrue, "")
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, made)
}

// WK-07: a work turns from Update to ServerSideApply without a conflict with itself, and what the new manifest does not name
// goes. WK-12: the owner goes with the option.
func TestTurnToServerSideApply(t *testing.T) {
	t.Parallel()
	const name = "turn"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	const service = `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"turn","name":"turn"},"spec":{"ports":[{"port":%d}]%s}}`
	w := framework.Work(name, name, fmt.Sprintf(service, 80, `,"externalIPs":["192.0.2.1"]`))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	change(t, h, w, func(s *workv1.ManifestWorkSpec) {
		s.Workload.Manifests = framework.RawManifests(fmt.Sprintf(service, 81, ""))
		s.ManifestConfigs = []workv1.ManifestConfigOption{config("", "services", ns, name, serverSide(workv1.ServerSideApplyConfig{}))}
		s.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	})
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	framework.AwaitObject(t, m, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, func(s *corev1.Service) error {
		if len(s.Spec.Ports) != 1 || s.Spec.Ports[0].Port != 81 || len(s.Spec.ExternalIPs) != 0 || owned(s) != 0 || len(s.Annotations) != 0 {
			return fmt.Errorf("%+v, %+v", s.ObjectMeta, s.Spec)
		}
		return nil
	})
}

// WK-05, WK-07: a work with the strategy ServerSideApply takes nothing from an object that another work updates.
func TestUpdatedAndAppliedServerSide(t *testing.T) {
	t.Parallel()
	const name = "updated-and-applied"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	account := func(label, value string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":%q,"name":"both","labels":{%q:%q}}}`, ns, label,
			value)
	}
	accounts, err := m.Watch(t.Context(), &corev1.ServiceAccountList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer accounts.Stop()
	updates := framework.Work(name, "updates", account("updated", "1"))
	framework.Create(t, h, updates)
	framework.AwaitCondition(t, h, updates, "Applied", metav1.ConditionTrue)
	applies := framework.Work(name, "applies", account("applied", "1"))
	applies.Spec.ManifestConfigs = []workv1.ManifestConfigOption{
		config("", "serviceaccounts", ns, "both", serverSide(workv1.ServerSideApplyConfig{}))}
	framework.Create(t, h, applies)
	framework.AwaitCondition(t, h, applies, "Applied", metav1.ConditionTrue)
	change(t, h, applies, func(s *workv1.ManifestWorkSpec) {
		s.Workload.Manifests = framework.RawManifests(account("applied", "2"))
	})
	for event := range env.Events(t, accounts) {
		both := event.Object.(*corev1.ServiceAccount)
		if both.Name != "both" {
			continue
		}
		if both.Labels["updated"] != "1" {
			t.Errorf("%v with the labels %v", event.Type, both.Labels)
		}
		if both.Labels["applied"] == "2" {
			break
		}
	}
}

const scaled = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":%q,"name":"web"},"spec":{"replicas":%d,"selector":{"matchLabels":{"app":"web"}},
	"template":{"metadata":{"labels":{"app":"web"}},"spec":{"terminationGracePeriodSeconds":%d,"containers":[{"name":"web","image":%q}]}}}}`

// WK-08, gap W21: fields to ignore are part of what is made, then belong to their writer, and all others are still repaired,
// in any number of rounds and over a change of the manifest.
func TestIgnoreFields(t *testing.T) {
	t.Parallel()
	for kind, field := range map[string]workv1.IgnoreField{
		"path":    {Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JSONPaths: []string{".spec.replicas"}},
		"pointer": {Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JSONPointers: []string{"/spec/replicas"}},
		"jq":      {Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JQPathExpressions: []string{`.spec | select(.template) | .replicas`}},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name := "ignore-" + kind
			env.Join(t, framework.Hub, framework.Managed, name)
			h, m := framework.Hub.Client(t), framework.Managed.Client(t)
			ns := framework.Namespace(t, m, name)
			w := framework.Work(name, name, fmt.Sprintf(scaled, ns, 3, 20, "web:1"))
			strategy := serverSide(workv1.ServerSideApplyConfig{Force: true, IgnoreFields: []workv1.IgnoreField{field}})
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{config("apps", "deployments", ns, "web", strategy)}
			framework.Create(t, h, w)
			framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
			web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
			is := func(replicas int32, image string, grace int64) {
				t.Helper()
				framework.AwaitObject(t, m, web, func(d *appsv1.Deployment) error {
					pod := d.Spec.Template.Spec
					if *d.Spec.Replicas != replicas || pod.Containers[0].Image != image || *pod.TerminationGracePeriodSeconds != grace {
						return fmt.Errorf("%d replicas of %s with %d s, want %d of %s with %d s", *d.Spec.Replicas, pod.Containers[0].Image,
							*pod.TerminationGracePeriodSeconds, replicas, image, grace)
					}
					return nil
				})
			}
			patch := func(p string) {
				t.Helper()
				if err := m.Patch(t.Context(), web, client.RawPatch(types.MergePatchType, []byte(p)), client.FieldOwner("kubectl")); err != nil {
					t.Fatal(err)
				}
			}
			is(3, "web:1", 20)
			for round := range int32(3) {
				if err := m.SubResource("scale").Update(t.Context(), web, client.WithSubResourceBody(&autoscalingv1.Scale{
					ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: 5 + round},
				})); err != nil {
					t.Fatal(err)
				}
				patch(`{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":99,"containers":[{"name":"web","image":"drift"}]}}}}`)
				is(5+round, "web:1", 20)
			}
			// What nobody else ever wrote stays as well when the manifest changes.
			change(t, h, w, func(s *workv1.ManifestWorkSpec) {
				s.Workload.Manifests = framework.RawManifests(fmt.Sprintf(scaled, ns, 4, 30, "web:2"))
			})
			is(7, "web:2", 30)
			framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
			for _, e := range framework.AwaitObject(t, m, web, func(*appsv1.Deployment) error { return nil }).ManagedFields {
				if e.Manager == "work-agent" && strings.Contains(e.FieldsV1.GetRawString(), `"f:replicas"`) {
					t.Error("the agent owns the field that it ignores, so others would be in conflict with it")
				}
			}
		})
	}
}

// WK-08: OnSpokeChange ignores a field until the manifest changes, also over a restart of the agent; an expression that cannot
// be used has a reason of its own.
func TestIgnoreFieldsOnSpokeChange(t *testing.T) {
	t.Parallel()
	const name = "spoke-change"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	manifest := func(key, more string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"a"},"data":{"key":%q,"more":%q}}`, ns, key,
			more)
	}
	w := framework.Work(name, name, manifest("1", "1"))
	ignored := workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPaths: []string{".data.key"}}
	strategy := serverSide(workv1.ServerSideApplyConfig{Force: true, IgnoreFields: []workv1.IgnoreField{ignored}})
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{config("", "configmaps", ns, "a", strategy)}
	framework.Create(t, h, w)
	framework.AwaitData(t, m, ns, "a", map[string]string{"key": "1", "more": "1"})
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	framework.PatchData(t, m, ns, "a", "key", "theirs")
	framework.PatchData(t, m, ns, "a", "more", "theirs")
	framework.AwaitData(t, m, ns, "a", map[string]string{"key": "theirs", "more": "1"})
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	framework.PatchData(t, m, ns, "a", "more", "theirs")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitData(t, m, ns, "a", map[string]string{"key": "theirs", "more": "1"})
	change(t, h, w, func(s *workv1.ManifestWorkSpec) { s.Workload.Manifests = framework.RawManifests(manifest("2", "2")) })
	framework.AwaitData(t, m, ns, "a", map[string]string{"key": "2", "more": "2"})

	change(t, h, w, func(s *workv1.ManifestWorkSpec) {
		s.ManifestConfigs[0].UpdateStrategy.ServerSideApply.IgnoreFields[0].JQPathExpressions = []string{".data |"}
	})
	if cond := awaitManifest(t, h, w, 0, metav1.ConditionFalse,
		`jqPathExpressions ".data |"`); cond.Reason != "AppliedManifestSSAIgnoreFieldError" {
		t.Errorf("%+v", cond)
	}
}
