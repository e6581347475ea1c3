package works

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// appliedName is WK-03's name of the AppliedManifestWork, computed on its own.
func appliedName(t *testing.T, agent *env.Agent, work string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(agent.HubConfig(t).Host))
	return hex.EncodeToString(sum[:]) + "-" + work
}

func appliedWork(t *testing.T, agent *env.Agent, work string) *workv1.AppliedManifestWork {
	t.Helper()
	amw := &workv1.AppliedManifestWork{}
	if err := framework.Managed.Client(t).Get(t.Context(), client.ObjectKey{Name: appliedName(t, agent, work)}, amw); err != nil {
		t.Fatal(err)
	}
	return amw
}

// WK-01 WK-02 WK-03 WK-05 WK-11 WK-13 WK-14 WK-20 to WK-23: the life of a work.
func TestWorkLife(t *testing.T) {
	t.Parallel()
	agent := env.Join(t, framework.Hub, framework.Managed, "life", "--agent-id", "agent1")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "life")
	w := framework.Work("life", "life", framework.ConfigMap(ns, "first", "1"), framework.ConfigMap(ns, "second", "1"))
	w.Labels = map[string]string{"team": "a"}
	framework.Create(t, h, w)

	got := framework.AwaitCondition(t, h, w, "Available", metav1.ConditionTrue)
	if !slices.Contains(got.Finalizers, "cluster.open-cluster-management.io/manifest-work-cleanup") {
		t.Errorf("finalizers: %v", got.Finalizers)
	}
	for kind, reason := range map[string]string{"Applied": "AppliedManifestWorkComplete", "Available": "ResourcesAvailable"} {
		if cond := meta.FindStatusCondition(got.Status.Conditions, kind); cond.Reason != reason {
			t.Errorf("condition %s has reason %s, want %s", kind, cond.Reason, reason)
		}
	}
	want := workv1.ManifestResourceMeta{Ordinal: 1, Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: ns, Name: "second"}
	second := got.Status.ResourceStatus.Manifests[1]
	if second.ResourceMeta != want {
		t.Errorf("resource meta %+v, want %+v", second.ResourceMeta, want)
	}
	for kind, reason := range map[string]string{"Applied": "AppliedManifestComplete", "Available": "ResourceAvailable"} {
		if cond := meta.FindStatusCondition(second.Conditions, kind); cond.Reason != reason || cond.ObservedGeneration != got.Generation {
			t.Errorf("manifest condition %s: %+v, want reason %s at generation %d", kind, cond, reason, got.Generation)
		}
	}
	amw := appliedWork(t, agent, "life")
	if amw.Spec.ManifestWorkName != "life" || amw.Spec.AgentID != "agent1" || amw.Name != amw.Spec.HubHash+"-life" ||
		amw.Labels["team"] != "a" ||
		!slices.Contains(amw.Finalizers, "cluster.open-cluster-management.io/applied-manifest-work-cleanup") {
		t.Errorf("AppliedManifestWork: %+v", amw)
	}
	cm := framework.AwaitConfigMap(t, m, ns, "first", "1")
	owner := metav1.OwnerReference{APIVersion: "work.open-cluster-management.io/v1", Kind: "AppliedManifestWork", Name: amw.Name, UID: amw.UID}
	if !slices.Equal(cm.OwnerReferences, []metav1.OwnerReference{owner}) {
		t.Errorf("owners %+v, want %+v", cm.OwnerReferences, owner)
	}
	// The inventory is written next to the status of the work, not before it.
	env.Eventually(t, func(context.Context) error {
		recorded := appliedWork(t, agent, "life").Status.AppliedResources
		if !slices.ContainsFunc(recorded, func(r workv1.AppliedManifestResourceMeta) bool {
			return r.Name == "first" && r.Namespace == ns && r.Resource == "configmaps" && r.Version == "v1" && r.UID == string(cm.UID)
		}) {
			return fmt.Errorf("applied resources: %+v", recorded)
		}
		return nil
	})

	// A new spec: one changes, one goes, one comes.
	before := got.DeepCopy()
	got.Spec.Workload.Manifests = framework.RawManifests(framework.ConfigMap(ns, "first", "2"), framework.ConfigMap(ns, "third", "1"))
	if err := h.Patch(t.Context(), got, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	got = framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	framework.AwaitConfigMap(t, m, ns, "first", "2")
	framework.AwaitConfigMap(t, m, ns, "third", "1")
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "second"}})
	if len(got.Status.ResourceStatus.Manifests) != 2 {
		t.Errorf("status of %d manifests", len(got.Status.ResourceStatus.Manifests))
	}

	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, w)
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "first"}})
	framework.AwaitGone(t, m, &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: amw.Name}})
}

// WK-20: what the cluster lacks for a work may come later: the namespace, or the definition of a kind.
func TestLatePrerequisites(t *testing.T) {
	t.Parallel()
	const name, kind = "late", "LateWidget"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	inNamespace := framework.Work(name, "namespaced", framework.ConfigMap(name, "late", "x"))
	custom := framework.Work(name, "custom", fmt.Sprintf(`{"apiVersion":"late.example.com/v1","kind":%q,"metadata":{"namespace":"default","name":"late"}}`, kind))
	framework.Create(t, h, inNamespace, custom)
	framework.AwaitCondition(t, h, inNamespace, "Applied", metav1.ConditionFalse)
	framework.AwaitCondition(t, h, custom, "Applied", metav1.ConditionFalse)

	framework.Namespace(t, m, name)
	framework.AwaitConfigMap(t, m, name, "late", "x")
	framework.AwaitCondition(t, h, inNamespace, "Applied", metav1.ConditionTrue)

	definition := &unstructured.Unstructured{}
	if err := definition.UnmarshalJSON([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"latewidgets.late.example.com"},
		"spec":{"group":"late.example.com","scope":"Namespaced","names":{"kind":"LateWidget","plural":"latewidgets"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)); err != nil {
		t.Fatal(err)
	}
	if err := m.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	framework.AwaitCondition(t, h, custom, "Applied", metav1.ConditionTrue)
}

// WK-14: a work stays, and says that it is being deleted, until everything it applied has gone.
func TestDeletionWaitsForObjects(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "held")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "held")
	w := framework.Work("held", "held", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"held","name":"held","finalizers":["example.com/held"]},"data":{"key":"1"}}`)
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	if err := h.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(w), w); err != nil {
			t.Fatalf("the work went before its object: %v", err)
		}
		cm := &corev1.ConfigMap{}
		if err := m.Get(ctx, client.ObjectKey{Namespace: ns, Name: "held"}, cm); err != nil {
			return err
		}
		if cm.DeletionTimestamp == nil {
			return fmt.Errorf("ConfigMap %s is not deleted", cm.Name)
		}
		return said{"Deleting": "True WorkDeleting"}.check(w.Status.Conditions, w.Generation)
	})
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "held"}}
	if err := m.Patch(t.Context(), cm,
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, w)
}

// WK-17, gap W1: what is changed or deleted on the cluster is put right from a watch.
func TestDriftIsRepaired(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "drift")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "drift")
	deployment := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"drift","name":"web"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},
		"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"nginx:1.14.2"}]}}}}`
	w := framework.Work("drift", "drift", framework.ConfigMap(ns, "drift", "right"), deployment)
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)

	cm := framework.AwaitConfigMap(t, m, ns, "drift", "right")
	cm.Data = map[string]string{"key": "wrong", "more": "of it"}
	if err := m.Update(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	cm = framework.AwaitConfigMap(t, m, ns, "drift", "right")
	first := cm.UID
	if err := m.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	if cm = framework.AwaitConfigMap(t, m, ns, "drift", "right"); cm.UID == first {
		t.Error("the ConfigMap was not deleted")
	}
	cm.OwnerReferences = nil
	if err := m.Update(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := m.Get(ctx, client.ObjectKeyFromObject(cm), cm); err != nil || len(cm.OwnerReferences) != 1 {
			return fmt.Errorf("owners %v: %w", cm.OwnerReferences, err)
		}
		return nil
	})
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
	scale := client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"web","image":"other"}]}}}}`))
	if err := m.Patch(t.Context(), web, scale); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := m.Get(ctx, client.ObjectKeyFromObject(web), web); err != nil {
			return err
		}
		if *web.Spec.Replicas != 1 || web.Spec.Template.Spec.Containers[0].Image != "nginx:1.14.2" {
			return fmt.Errorf("%d replicas of %s", *web.Spec.Replicas, web.Spec.Template.Spec.Containers[0].Image)
		}
		return nil
	})
}

// WK-13: an object of two works outlives the one that lets go of it.
func TestSharedObject(t *testing.T) {
	t.Parallel()
	agent := env.Join(t, framework.Hub, framework.Managed, "shared")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "shared")
	one := framework.Work("shared", "shared-one", framework.ConfigMap(ns, "both", "1"), framework.ConfigMap(ns, "one", "1"))
	two := framework.Work("shared", "shared-two", framework.ConfigMap(ns, "both", "1"))
	framework.Create(t, h, one, two)
	framework.AwaitCondition(t, h, one, "Applied", metav1.ConditionTrue)
	framework.AwaitCondition(t, h, two, "Applied", metav1.ConditionTrue)
	owners := func(want ...string) {
		t.Helper()
		var uids []string
		for _, w := range want {
			uids = append(uids, string(appliedWork(t, agent, w).UID))
		}
		slices.Sort(uids)
		env.Eventually(t, func(ctx context.Context) error {
			cm := &corev1.ConfigMap{}
			if err := m.Get(ctx, client.ObjectKey{Namespace: ns, Name: "both"}, cm); err != nil {
				return err
			}
			var have []string
			for _, o := range cm.OwnerReferences {
				have = append(have, string(o.UID))
			}
			if slices.Sort(have); !slices.Equal(have, uids) {
				return fmt.Errorf("owners %v, want %v", have, uids)
			}
			return nil
		})
	}
	owners("shared-one", "shared-two")
	before := framework.AwaitCondition(t, h, one, "Applied", metav1.ConditionTrue)
	after := before.DeepCopy()
	after.Spec.Workload.Manifests = framework.RawManifests(framework.ConfigMap(ns, "one", "1"))
	if err := h.Patch(t.Context(), after, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	owners("shared-two")
	if err := h.Delete(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "both"}})
	framework.AwaitConfigMap(t, m, ns, "one", "1")
}

// WK-04 WK-20 to WK-23: what cannot be applied is said where it is, and does not stop the rest.
func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "failing")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "failing")
	w := framework.Work("failing", "failing",
		`{"apiVersion":"example.com/v1","kind":"Unknown","metadata":{"namespace":"failing","name":"a"}}`,
		framework.ConfigMap(ns, "good", "1"),
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"nowhere"}}`,
	)
	framework.Create(t, h, w)
	got := framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionFalse)
	framework.AwaitConfigMap(t, m, ns, "good", "1")
	for i, want := range []struct{ applied, available, message string }{
		{"AppliedManifestFailed", "ResourceNotAvailable", "the managed cluster has no kind Unknown in example.com/v1"},
		{"AppliedManifestComplete", "ResourceAvailable", "Apply manifest complete"},
		{"AppliedManifestFailed", "ResourceNotAvailable", "metadata.namespace is missing"},
	} {
		conditions := got.Status.ResourceStatus.Manifests[i].Conditions
		applied, available := meta.FindStatusCondition(conditions, "Applied"), meta.FindStatusCondition(conditions, "Available")
		if applied.Reason != want.applied || available.Reason != want.available || !strings.Contains(applied.Message, want.message) {
			t.Errorf("manifest %d: %s (%s), %s; want %+v", i, applied.Reason, applied.Message, available.Reason, want)
		}
	}
	if cond := meta.FindStatusCondition(got.Status.Conditions, "Applied"); cond.Reason != "AppliedManifestWorkFailed" ||
		!strings.Contains(cond.Message, "2 of 3 manifests") {
		t.Errorf("Applied: %+v", cond)
	}
	if cond := meta.FindStatusCondition(got.Status.Conditions, "Available"); cond.Reason != "ResourcesNotAvailable" ||
		!strings.Contains(cond.Message, "2 of 3 resources") {
		t.Errorf("Available: %+v", cond)
	}
}

// WK-04: within a work, what others need comes first, whatever the order of the list.
func TestOrderWithinWork(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "order")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	w := framework.Work("order", "order",
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"namespace":"order-made","name":"thing"}}`,
		framework.ConfigMap("order-made", "in-it", "1"),
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
			"names":{"kind":"Thing","plural":"things","singular":"thing","listKind":"ThingList"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"order-made"}}`,
	)
	framework.Create(t, h, w)
	got := framework.AwaitCondition(t, h, w, "Applied", metav1.ConditionTrue)
	framework.AwaitConfigMap(t, m, "order-made", "in-it", "1")
	for i, manifest := range got.Status.ResourceStatus.Manifests {
		if manifest.ResourceMeta.Ordinal != int32(i) {
			t.Errorf("entry %d of the status is for ordinal %d", i, manifest.ResourceMeta.Ordinal)
		}
	}
}

// The examples of the documentation, as kubectl would apply them.
func TestExamples(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "cluster1")
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	for _, file := range []string{"manifestwork-hello.yaml", "manifestwork-nginx.yaml", "manifestwork-feedback.yaml"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "examples", file))
		if err != nil {
			t.Fatal(err)
		}
		w := &workv1.ManifestWork{}
		if err := yaml.UnmarshalStrict(content, w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		w.Namespace = "cluster1"
		framework.Create(t, h, w)
		framework.AwaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
		framework.AwaitCondition(t, h, w, fleet.ConditionAvailable, metav1.ConditionTrue)
	}
	env.Eventually(t, func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := m.Get(ctx, client.ObjectKey{Namespace: "default", Name: "hello"}, pod); err != nil || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod hello is %q: %w", pod.Status.Phase, err)
		}
		return nil
	})
}
