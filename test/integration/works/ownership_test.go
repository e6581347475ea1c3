package works

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// awaitOwners waits until a ConfigMap has so many owners.
func awaitOwners(t *testing.T, c client.Client, namespace, name string, n int) {
	t.Helper()
	framework.AwaitObject(t, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		func(cm *corev1.ConfigMap) error {
			if owned(cm) != n {
				return fmt.Errorf("ConfigMap %s has the owners %v, want %d", name, cm.OwnerReferences, n)
			}
			return nil
		})
}

// WK-12, gap W15: a change of the delete option takes owners away and gives them back, and what is orphaned stays.
func TestDeleteOptionChanges(t *testing.T) {
	t.Parallel()
	const name = "delete-option"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name, framework.ConfigMap(ns, "one", "1"), framework.ConfigMap(ns, "two", "1"))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	option := func(o *workv1.DeleteOption, one, two int) {
		t.Helper()
		change(t, h, w, func(s *workv1.ManifestWorkSpec) { s.DeleteOption = o })
		awaitOwners(t, m, ns, "one", one)
		awaitOwners(t, m, ns, "two", two)
		env.Eventually(t, func(context.Context) error {
			if recorded := appliedWork(t, agent, name).Status.AppliedResources; len(recorded) != one+two {
				return fmt.Errorf("applied resources: %+v", recorded)
			}
			return nil
		})
	}
	selective := &workv1.DeleteOption{
		PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
		SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{{Resource: "configmaps", Namespace: ns,
			Name: "one"}}},
	}
	option(&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}, 0, 0)
	option(nil, 1, 1)
	option(selective, 0, 1)
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, w)
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "two"}})
	framework.AwaitConfigMap(t, m, ns, "one", "1")
}

// WK-12, gap W15: an option that comes with the deletion counts, even if the agent sees both at once.
func TestOrphanedInTheLastMoment(t *testing.T) {
	t.Parallel()
	const name = "last-moment"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name, framework.ConfigMap(ns, "kept", "1"))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	change(t, h, w, func(s *workv1.ManifestWorkSpec) {
		s.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	})
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, w)
	awaitOwners(t, m, ns, "kept", 0)
}

// heldDependent applies a Deployment with a work, and holds its ReplicaSet with a finalizer until it is called.
func heldDependent(t *testing.T, name string, option *workv1.DeleteOption) (w *workv1.ManifestWork, held *appsv1.ReplicaSet,
	release func()) {
	t.Helper()
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w = framework.Work(name, name, fmt.Sprintf(scaled, ns, 1, 1, "web:1"))
	w.Spec.DeleteOption = option
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	sets := &appsv1.ReplicaSetList{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := m.List(ctx, sets, client.InNamespace(ns)); err != nil || len(sets.Items) != 1 {
			return fmt.Errorf("%d ReplicaSets: %w", len(sets.Items), err)
		}
		return nil
	})
	held = &sets.Items[0]
	hold := func(finalizers string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers)
		if err := m.Patch(t.Context(), held, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["example.com/held"]`)
	return w, held, func() { hold("null") }
}

// WK-12, gap W15: a work that says Foreground goes after the dependents of its objects. If they stay, the work says so, and it does not
// wait for them any more when it is told not to.
func TestForegroundDeletion(t *testing.T) {
	t.Parallel()
	for _, released := range []bool{true, false} {
		t.Run(fmt.Sprintf("released %t", released), func(t *testing.T) {
			t.Parallel()
			w, held, release := heldDependent(t, fmt.Sprintf("foreground-%t", released),
				&workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground})
			h, m := framework.Hub.Client(t), framework.Managed.Client(t)
			if err := h.Delete(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			framework.AwaitObject(t, m, held, func(s *appsv1.ReplicaSet) error {
				if s.DeletionTimestamp == nil {
					return fmt.Errorf("the ReplicaSet is not being deleted")
				}
				return nil
			})
			web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: held.Namespace, Name: "web"}}
			if err := m.Get(t.Context(), client.ObjectKeyFromObject(web), web); err != nil || web.DeletionTimestamp == nil {
				t.Errorf("the Deployment did not wait for its ReplicaSet: %v", err)
			}
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
				t.Errorf("the work did not wait for the Deployment: %v", err)
			}
			if released {
				release()
				framework.AwaitGone(t, h, w)
				return
			}
			framework.AwaitObject(t, h, w, func(w *workv1.ManifestWork) error {
				cond := meta.FindStatusCondition(w.Status.Conditions, fleet.ConditionDeleting)
				if cond == nil || cond.Status != metav1.ConditionTrue || cond.Reason != fleet.ReasonWorkDeleting {
					return fmt.Errorf("conditions: %+v", w.Status.Conditions)
				}
				for _, part := range []string{"1 object left", "deployments.apps " + held.Namespace + "/web", "foregroundDeletion", "garbage collector",
					"kubectl -n " + w.Namespace + " patch"} {
					if !strings.Contains(cond.Message, part) {
						return fmt.Errorf("the condition does not speak of %q: %s", part, cond.Message)
					}
				}
				return nil
			})
			framework.FollowAdvice(t, h, meta.FindStatusCondition(w.Status.Conditions, fleet.ConditionDeleting).Message, "patch manifestwork")
			framework.AwaitGone(t, h, w)
			framework.AwaitGone(t, m, web)
			if err := m.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil {
				t.Errorf("the ReplicaSet: %v", err)
			}
			release()
		})
	}
}

// WK-12 WK-32: the policy that the API server fills in next to a TTL makes nobody wait for dependents.
func TestDefaultedForeground(t *testing.T) {
	t.Parallel()
	w, held, release := heldDependent(t, "defaulted-foreground", nil)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	if err := h.Patch(t.Context(), w,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deleteOption":{"ttlSecondsAfterFinished":3600}}}`))); err != nil {
		t.Fatal(err)
	}
	if w.Spec.DeleteOption.PropagationPolicy != workv1.DeletePropagationPolicyTypeForeground {
		t.Fatalf("the API server makes it %+v", w.Spec.DeleteOption)
	}
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, w)
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil {
		t.Errorf("the ReplicaSet: %v", err)
	}
	release()
}

// WK-13: what was applied in a version that the cluster serves no more is deleted in another.
func TestVersionGoes(t *testing.T) {
	t.Parallel()
	const name = "version-goes"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	definition := func(served bool) string {
		return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"relics.version.example.com"},"spec":{"group":"version.example.com","scope":"Cluster",
			"names":{"kind":"Relic","plural":"relics","singular":"relic","listKind":"RelicList"},"versions":[
			{"name":"v1alpha1","served":%t,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}},
			{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, served)
	}
	crd := framework.Work(name, "crd", definition(true))
	framework.Create(t, h, crd)
	framework.AwaitCondition(t, h, crd, "Applied", metav1.ConditionTrue)
	w := framework.Work(name, "relic", `{"apiVersion":"version.example.com/v1alpha1","kind":"Relic","metadata":{"name":"old"}}`)
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	relic := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "version.example.com/v1", Kind: "Relic"},
		ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	// It shows whether it was deleted by the agent, or by the garbage collector once its owner had gone.
	if err := m.Patch(t.Context(), relic,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/held"]}}`))); err != nil {
		t.Fatal(err)
	}
	change(t, h, crd, func(s *workv1.ManifestWorkSpec) { s.Workload.Manifests = framework.RawManifests(definition(false)) })
	framework.AwaitCondition(t, h, crd, "Applied", metav1.ConditionTrue)
	env.Eventually(t, func(ctx context.Context) error {
		gone := relic.DeepCopy()
		gone.APIVersion = "version.example.com/v1alpha1"
		if err := m.Get(ctx, client.ObjectKey{Name: "old"}, gone); !apierrors.IsNotFound(err) {
			return fmt.Errorf("v1alpha1 is still served: %w", err)
		}
		return nil
	})
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, m, relic, func(o *metav1.PartialObjectMetadata) error {
		if o.DeletionTimestamp == nil {
			return fmt.Errorf("it is not being deleted")
		}
		return nil
	})
	if appliedWork(t, agent, "relic").DeletionTimestamp == nil {
		t.Error("the AppliedManifestWork did not wait for the object")
	}
	if err := m.Patch(t.Context(), relic, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, w)
}

// WK-05: a field that was taken out of the manifest while no agent was there goes; one that others set stays.
func TestFieldRemovedWhileAway(t *testing.T) {
	t.Parallel()
	const name = "removed-field"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	const service = `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":%q,"name":"svc"},"spec":{"ports":[{"port":80}]%s}}`
	w := framework.Work(name, name, fmt.Sprintf(service, ns, `,"externalIPs":["192.0.2.1"]`))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "svc"}}
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := m.Patch(t.Context(), svc, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"sessionAffinity":"ClientIP"}}`))); err != nil {
		t.Fatal(err)
	}
	change(t, h, w, func(s *workv1.ManifestWorkSpec) {
		s.Workload.Manifests = framework.RawManifests(fmt.Sprintf(service, ns, ""))
	})
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	framework.AwaitObject(t, m, svc, func(s *corev1.Service) error {
		if len(s.Spec.ExternalIPs) != 0 || s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
			return fmt.Errorf("%+v", s.Spec)
		}
		return nil
	})
}

// WK-05: labels, annotations, finalizers and owners that a manifest names no more go from its object, also when the agent was killed
// before, so that the object can be deleted; those of others stay.
func TestKeysRemovedWhileAway(t *testing.T) {
	t.Parallel()
	const name = "removed-keys"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner"}}
	framework.Create(t, m, owner)
	manifest := func(keys string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"cm"%s}}`, ns, keys)
	}
	keys := fmt.Sprintf(`,"labels":{"example.com/a":"1","example.com/both":"1"},"annotations":{"example.com/b":"2"},
		"finalizers":["example.com/f","example.com/both"],
		"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]`, owner.UID)
	w := framework.Work(name, name, manifest(keys))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cm"}}
	awaitOwners(t, m, ns, "cm", 2)
	agent.Kill()
	theirs := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"cm",
		"labels":{"example.com/both":"1","example.com/x":"1"},"finalizers":["example.com/both"]}}`, ns)
	if err := m.Patch(t.Context(), cm, client.RawPatch(types.ApplyPatchType, []byte(theirs)), client.FieldOwner("theirs")); err != nil {
		t.Fatal(err)
	}
	change(t, h, w, func(s *workv1.ManifestWorkSpec) { s.Workload.Manifests = framework.RawManifests(manifest("")) })
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, m, cm, func(cm *corev1.ConfigMap) error {
		labels := map[string]string{"example.com/both": "1", "example.com/x": "1"}
		if !maps.Equal(cm.Labels, labels) || len(cm.Annotations) != 0 || !slices.Equal(cm.Finalizers, []string{"example.com/both"}) ||
			owned(cm) != 1 || cm.OwnerReferences[0].Kind != "AppliedManifestWork" {
			return fmt.Errorf("%+v", cm.ObjectMeta)
		}
		return nil
	})
	// A finalizer goes from an object that is being deleted, too.
	change(t, h, w, func(s *workv1.ManifestWorkSpec) {
		s.Workload.Manifests = framework.RawManifests(strings.Replace(manifest(`,"finalizers":["example.com/f"]`), `"cm"`, `"held"`, 1))
	})
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "held"}}
	framework.AwaitObject(t, m, held, func(cm *corev1.ConfigMap) error {
		if len(cm.Finalizers) != 1 {
			return fmt.Errorf("%+v", cm.ObjectMeta)
		}
		return nil
	})
	if err := m.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	before := held.UID
	change(t, h, w, func(s *workv1.ManifestWorkSpec) {
		s.Workload.Manifests = framework.RawManifests(strings.Replace(manifest(""), `"cm"`, `"held"`, 1))
	})
	framework.AwaitObject(t, m, held, func(cm *corev1.ConfigMap) error {
		if cm.UID == before || len(cm.Finalizers) != 0 {
			return fmt.Errorf("%+v", cm.ObjectMeta)
		}
		return nil
	})
	if err := m.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, cm)
}

// WK-15: what was applied for a work that went without the agent's doing, or for a hub that the agent left, is evicted; what
// other agents applied is not.
func TestEviction(t *testing.T) {
	t.Parallel()
	const name = "evicting"
	agent := env.Join(t, framework.Hub, framework.Managed, name, "--agent-id", "evicting-agent", "--appliedmanifestwork-eviction-grace-period", "1s")
	other := env.Join(t, framework.Hub, framework.Managed, "evicting-other")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, "evicted", framework.ConfigMap(ns, "evicted", "1"))
	kept := framework.Work("evicting-other", "evicting-other", framework.ConfigMap(ns, "kept", "1"))
	framework.Create(t, h, w, kept)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	framework.AwaitCondition(t, h, kept, "Applied", metav1.ConditionTrue)
	former := func(agentID string) *workv1.AppliedManifestWork {
		amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "former-" + agentID},
			Spec: workv1.AppliedManifestWorkSpec{HubHash: "former", AgentID: agentID, ManifestWorkName: agentID}}
		framework.Create(t, m, amw)
		return amw
	}
	left, theirs := former("evicting-agent"), former("nobody")
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := h.Patch(t.Context(), w, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "evicted"}})
	framework.AwaitGone(t, m, left)
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil || theirs.Status.EvictionStartTime != nil {
		t.Errorf("of another agent of another hub: %+v (%v)", theirs.Status, err)
	}
	if amw := appliedWork(t, other, "evicting-other"); amw.Status.EvictionStartTime != nil {
		t.Errorf("of another cluster of the hub: %+v", amw.Status)
	}
	framework.AwaitConfigMap(t, m, ns, "kept", "1")
}
