package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// MR-04 MR-05: on the real API server nothing is written when nothing is due, clusters without an agent hold up a
// rollout, and a work goes when its cluster is not selected any more.
func TestReplicaSetWithoutAgents(t *testing.T) {
	t.Parallel()
	const name = "set-silent"
	h := framework.Hub.Client(t)
	clusters := framework.ClusterNamespaces(t, h, name, 3)
	decision := framework.Decide(t, h, name, clusters...)
	set := framework.InTurn(framework.ReplicaSet(name, name, framework.SetManifest(name, "1"), name), 2)
	framework.Create(t, h, set)
	framework.AwaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, DesiredTotal: 3, Updated: 2})
	works, err := framework.WorksOf(t.Context(), h, set)
	if err != nil {
		t.Fatal(err)
	}
	// An edit that is no news, and a drift that is repaired: had the hub written more in between, the generations told.
	framework.UpdateSet(t, h, set, func(s *workv1alpha1.ManifestWorkReplicaSet) { s.Labels = map[string]string{"team": "a"} })
	drifted := works[0].DeepCopy()
	drifted.Spec.Workload.Manifests = framework.RawManifests(framework.SetManifest(name, "drift"))
	if err := h.Patch(t.Context(), drifted, client.MergeFrom(&works[0])); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		now, err := framework.WorksOf(ctx, h, set)
		if err != nil {
			return err
		}
		for _, w := range now {
			want := int64(1)
			if w.Name == drifted.Name && w.Namespace == drifted.Namespace {
				want = 3
			}
			if w.Generation != want || w.Labels["team"] != "a" {
				return fmt.Errorf("work of %s has generation %d, want %d, and labels %v", w.Namespace, w.Generation, want, w.Labels)
			}
		}
		return nil
	})
	framework.Redecide(t, h, decision, clusters[2])
	framework.AwaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, DesiredTotal: 1, Updated: 1})
	if err := h.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, set)
}

// MR-04: on the real API server, too, nulls of manifests get to works, and a rollout of them comes to rest.
func TestReplicaSetWithNulls(t *testing.T) {
	t.Parallel()
	const name = "set-nulls"
	h := framework.Hub.Client(t)
	framework.Decide(t, h, name, framework.ClusterNamespaces(t, h, name, 2)...)
	const plain = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"set-nulls","namespace":"default"},"data":{"key":"1"}}`
	set := framework.InTurn(framework.ReplicaSet(name, name, plain, name), 2)
	framework.Create(t, h, set)
	awaitRolledOut(t, h, set, 2)
	for _, manifest := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"set-nulls","namespace":"default"},"data":{"key":"1"},"immutable":null}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"set-nulls","namespace":"default","creationTimestamp":null},` +
			`"data":{"key":"2"},"immutable":null}`,
	} {
		framework.UpdateSet(t, h, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
			s.Spec.ManifestWorkTemplate.Workload.Manifests = framework.RawManifests(manifest)
		})
		if raw := string(set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw); !strings.Contains(raw, `"immutable":null`) {
			t.Fatalf("the set has lost its null: %s", raw)
		}
		awaitRolledOut(t, h, set, 2)
	}
	before, err := framework.WorksOf(t.Context(), h, set)
	if err != nil {
		t.Fatal(err)
	}
	framework.UpdateSet(t, h, set, func(s *workv1alpha1.ManifestWorkReplicaSet) { s.Spec.CascadeDeletionPolicy = workv1alpha1.Foreground })
	awaitRolledOut(t, h, set, 2)
	after, err := framework.WorksOf(t.Context(), h, set)
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		if len(after) != len(before) || after[i].ResourceVersion != before[i].ResourceVersion {
			t.Errorf("the works were written when nothing was due: %+v, before %+v", after, before)
		}
	}
}

// awaitRolledOut has the agents of all works report that they have applied the template of the set as it is, and waits until the set says
// that it is rolled out.
func awaitRolledOut(t *testing.T, c client.Client, set *workv1alpha1.ManifestWorkReplicaSet, clusters int) {
	t.Helper()
	want := string(set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw)
	var works []workv1.ManifestWork
	env.Eventually(t, func(ctx context.Context) (err error) {
		if works, err = framework.WorksOf(ctx, c, set); err != nil || len(works) != clusters {
			return fmt.Errorf("%d works: %w", len(works), err)
		}
		for _, w := range works {
			if got := string(w.Spec.Workload.Manifests[0].Raw); got != want {
				return fmt.Errorf("%s has %s, want %s", w.Namespace, got, want)
			}
		}
		return nil
	})
	for i := range works {
		framework.ReportApplied(t, c, &works[i])
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		done := meta.FindStatusCondition(set.Status.Conditions, fleet.ConditionPlacementRolledOut)
		if done == nil || done.Status != metav1.ConditionTrue || done.ObservedGeneration != set.Generation {
			return fmt.Errorf("at generation %d, PlacementRolledOut is %+v", set.Generation, done)
		}
		return nil
	})
}

// MR-04: a hub that is killed in the middle of a rollout goes on where it was: nobody gets two works, and no more than
// two clusters change at once.
func TestHubKilledWhileRollingOut(t *testing.T) {
	t.Parallel()
	const name, n = "set-crash", 12
	own := env.StartHub(t, "work")
	c := own.Client(t)
	clusters := framework.ClusterNamespaces(t, c, name, n)
	framework.Decide(t, c, name, clusters...)
	set := framework.InTurn(framework.ReplicaSet(name, name, framework.SetManifest(name, "1"), name), 2)
	framework.Create(t, c, set)
	for done := 0; done < n; done += 2 {
		framework.AwaitSummary(t, c, set, workv1alpha1.ManifestWorkReplicaSetSummary{
			Total: done + 2, DesiredTotal: n, Applied: done, Available: done, Updated: done + 2,
		})
		works, err := framework.WorksOf(t.Context(), c, set)
		if err != nil || len(works) != done+2 {
			t.Fatalf("%d works: %v", len(works), err)
		}
		for i := range works {
			framework.ReportApplied(t, c, &works[i])
		}
		if done%4 == 0 {
			own.Kill()
			if err := own.Start(); err != nil {
				t.Fatal(err)
			}
			if err := own.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	framework.AwaitSummary(t, c, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: n, DesiredTotal: n, Applied: n, Available: n,
		Updated: n})
}

func TestRollback(t *testing.T) {
	t.Parallel()
	framework.CheckRollback(t, framework.Hub, "set-rollback")
}

// MR-01, gap W8: the example of the docs is one.
func TestReplicaSetExample(t *testing.T) {
	t.Parallel()
	const name = "set-example"
	h := framework.Hub.Client(t)
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "examples", "manifestworkreplicaset-web.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	if err := yaml.UnmarshalStrict(content, set); err != nil {
		t.Fatal(err)
	}
	clusters := framework.ClusterNamespaces(t, h, name, 3)
	framework.Decide(t, h, name, clusters...)
	set.Namespace, set.Spec.PlacementRefs[0].Name = name, name
	framework.Create(t, h, set)
	framework.AwaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, DesiredTotal: 3, Updated: 2})
	works, err := framework.WorksOf(t.Context(), h, set)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range works {
		raw := string(w.Spec.Workload.Manifests[0].Raw)
		if !strings.Contains(raw, fmt.Sprintf(`"cluster":%q`, w.Namespace)) || !strings.Contains(raw, `"region":"unknown"`) ||
			strings.Contains(raw, "debug") {
			t.Errorf("%s has %s", w.Namespace, raw)
		}
	}
	framework.ExpectRefusal(t, h.Patch(t.Context(), set,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"capstan.io/overrides":"- set: []"}}}`))),
		apierrors.IsBadRequest, "metadata.annotations[capstan.io/overrides][0]: Required value")
}

// A user who may write sets and Secrets in a namespace, and not execute as any user, prepares a revision for an executor that an
// administrator sets later. The hub has its history, the tenant may have it forgotten.
func TestForgedHistory(t *testing.T) {
	t.Parallel()
	const name = "set-forged"
	h := framework.Hub.Client(t)
	clusters := framework.ClusterNamespaces(t, h, name, 1)
	framework.Decide(t, h, name, clusters...)
	framework.Create(t, h,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenant"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenant"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
				Name: "tenant"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "set-forger"}},
		})
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "set-forger", Groups: []string{fleet.GroupAuthenticated}}
	tenant, err := client.New(config, client.Options{Scheme: h.Scheme(), Mapper: h.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	const forged = `[{"revision":1,"hash":"0123456789abcdef","executor":"system:serviceaccount:apps:bot","state":"Good"}]`
	set := framework.ReplicaSet(name, name, framework.SetManifest(name, "1"), name)
	set.Annotations = map[string]string{fleet.AnnotationRollback: "true", fleet.AnnotationRevisions: forged}
	const refusal = "metadata.annotations[capstan.io/revisions]: Forbidden: the hub writes the revisions of a set"
	framework.ExpectRefusal(t, tenant.Create(t.Context(), set.DeepCopy()), apierrors.IsBadRequest, refusal)
	delete(set.Annotations, fleet.AnnotationRevisions)
	framework.Create(t, tenant, set)
	framework.AwaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, DesiredTotal: 1, Updated: 1})
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil || set.Annotations[fleet.AnnotationRevisions] == "" {
			return fmt.Errorf("the hub has noted no revision: %w", err)
		}
		return nil
	})
	annotate := func(name string, value any) error {
		content, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}})
		if err != nil {
			t.Fatal(err)
		}
		return tenant.Patch(t.Context(), set.DeepCopy(), client.RawPatch(types.MergePatchType, content))
	}
	framework.ExpectRefusal(t, annotate(fleet.AnnotationRevisions, forged), apierrors.IsBadRequest, refusal)
	framework.UpdateSet(t, h, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
		s.Spec.ManifestWorkTemplate.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "apps",
				Name: "bot"},
		}}
	})
	framework.ExpectRefusal(t, annotate(fleet.AnnotationRevisions, forged), apierrors.IsBadRequest,
		"cannot manipulate the Manifestwork with executor system:serviceaccount:apps:bot")
	framework.ExpectRefusal(t, annotate(fleet.AnnotationRollback, nil), apierrors.IsBadRequest,
		"cannot manipulate the Manifestwork with executor system:serviceaccount:apps:bot")
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil || !strings.Contains(set.Annotations[fleet.AnnotationRevisions],
			`"executor":"system:serviceaccount:apps:bot"`) {
			return fmt.Errorf("the hub has noted %q: %w", set.Annotations[fleet.AnnotationRevisions], err)
		}
		return nil
	})
}
