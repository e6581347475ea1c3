package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// replicaSet makes a set of one manifest in JSON.
func replicaSet(namespace, name, manifest string, placements ...string) *workv1alpha1.ManifestWorkReplicaSet {
	s := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.ManifestWorkTemplate.Workload.Manifests = raw(manifest)
	for _, p := range placements {
		s.Spec.PlacementRefs = append(s.Spec.PlacementRefs, workv1alpha1.LocalPlacementReference{Name: p})
	}
	return s
}

// version is a manifest of the set of a name. Each version is an object of its own: the clusters of a test are one cluster,
// and their works would fight over it.
func version(name, value string) string { return configMap(name, name+"-"+value, value) }

// inTurn lets so many clusters of the only placement begin at once.
func inTurn(s *workv1alpha1.ManifestWorkReplicaSet, concurrency int) *workv1alpha1.ManifestWorkReplicaSet {
	n := intstr.FromInt(concurrency)
	s.Spec.PlacementRefs[0].RolloutStrategy = clusterv1alpha1.RolloutStrategy{
		Type: clusterv1alpha1.Progressive, Progressive: &clusterv1alpha1.RolloutProgressive{MaxConcurrency: &n},
	}
	return s
}

// decide makes a namespace with a Placement of its name that has decided on clusters, with all clusters bound to it. Experimental
// scheduling is off for it: the test is the scheduler.
func decide(t *testing.T, c client.Client, namespace string, clusters ...string) *clusterv1beta1.PlacementDecision {
	t.Helper()
	p := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: namespace, Annotations: map[string]string{fleet.AnnotationSchedulingDisable: "true"},
	}}
	everything := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterSetGlobal}}
	everything.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
		LabelSelector: &metav1.LabelSelector{}}
	if err := c.Create(t.Context(), everything); client.IgnoreAlreadyExists(err) != nil { // a hub with all its controllers has it
		t.Fatal(err)
	}
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		setBinding(namespace, fleet.ClusterSetGlobal, fleet.ClusterSetGlobal), p)
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace + "-decision-1",
		Labels: map[string]string{
			fleet.LabelPlacement: p.Name, fleet.LabelDecisionGroupIndex: "0", fleet.LabelDecisionGroupName: "",
		}}}
	create(t, c, d)
	redecide(t, c, d, clusters...)
	return d
}

func redecide(t *testing.T, c client.Client, d *clusterv1beta1.PlacementDecision, clusters ...string) {
	t.Helper()
	d.Status.Decisions = []clusterv1beta1.ClusterDecision{}
	for _, cluster := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
	}
	if err := c.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// clusterNamespaces makes clusters as far as works are concerned: accepted, whether or not the hub has the controllers for that.
func clusterNamespaces(t *testing.T, c client.Client, prefix string, n int) (names []string) {
	t.Helper()
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
		cluster := acceptedCluster(names[i])
		create(t, c, cluster)
		err := c.Status().Patch(t.Context(), cluster, merge(`{"status":{"conditions":[{"type":"HubAcceptedManagedCluster","status":"True",`+
			`"reason":"HubClusterAdminAccepted","message":"by the test","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		err = c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i]}})
		if client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	return names
}

// worksOf are the works of a set.
func worksOf(ctx context.Context, c client.Client, s *workv1alpha1.ManifestWorkReplicaSet) ([]workv1.ManifestWork, error) {
	list := &workv1.ManifestWorkList{}
	err := c.List(ctx, list, client.MatchingLabels{"work.open-cluster-management.io/manifestworkreplicaset": s.Namespace + "." + s.Name})
	return list.Items, err
}

// awaitSummary waits until the set has the summary, and returns the set.
func awaitSummary(t *testing.T, c client.Client, s *workv1alpha1.ManifestWorkReplicaSet,
	want workv1alpha1.ManifestWorkReplicaSetSummary) *workv1alpha1.ManifestWorkReplicaSet {
	t.Helper()
	got := &workv1alpha1.ManifestWorkReplicaSet{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(s), got); err != nil {
			return err
		}
		if got.Status.Summary != want {
			return fmt.Errorf("summary %+v, want %+v; conditions %+v", got.Status.Summary, want, got.Status.Conditions)
		}
		return nil
	})
	return got
}

// updateSet edits the set, whichever other writers there are.
func updateSet(t *testing.T, c client.Client, s *workv1alpha1.ManifestWorkReplicaSet, edit func(*workv1alpha1.ManifestWorkReplicaSet)) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		edit(s)
		return c.Update(ctx, s)
	})
}

// awaitUpdated waits until so many works of the set have the present template, and fails if there are ever more that
// are not done with it than may be.
func awaitUpdated(t *testing.T, c client.Client, s *workv1alpha1.ManifestWorkReplicaSet, value string, want, concurrency int) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		works, err := worksOf(ctx, c, s)
		if err != nil {
			return err
		}
		updated, inFlight := 0, 0
		for _, w := range works {
			if !strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), fmt.Sprintf(`"key":%q`, value)) {
				continue
			}
			updated++
			if applied := meta.FindStatusCondition(w.Status.Conditions, "Available"); applied == nil || applied.ObservedGeneration != w.Generation {
				inFlight++
			}
		}
		if inFlight > concurrency {
			t.Fatalf("%d clusters are changing at once, want no more than %d", inFlight, concurrency)
		}
		if updated != want {
			return fmt.Errorf("%d works have the template, want %d", updated, want)
		}
		return nil
	})
}

// MR-01 MR-02 MR-04 MR-06 MR-07: a rollout over four clusters with real agents, two at a time; then a change, a removal,
// and the deletion that waits for the agents.
func TestReplicaSetLife(t *testing.T) {
	t.Parallel()
	const name = "set-life"
	h, m := hub.Client(t), managed.Client(t)
	namespace(t, m, name)
	var clusters []string
	for i := range 4 {
		clusters = append(clusters, fmt.Sprintf("%s-%d", name, i))
		env.Join(t, hub, managed, clusters[i])
	}
	decision := decide(t, h, name, clusters...)
	set := inTurn(replicaSet(name, name, version(name, "1"), name), 2)
	set.Spec.CascadeDeletionPolicy = workv1alpha1.Foreground
	create(t, h, set)
	all := workv1alpha1.ManifestWorkReplicaSetSummary{Total: 4, DesiredTotal: 4, Applied: 4, Available: 4, Updated: 4}
	awaitUpdated(t, h, set, "1", 4, 2)
	got := awaitSummary(t, h, set, all)
	for kind, reason := range map[string]string{"PlacementVerified": "AsExpected", "PlacementRolledOut": "Complete",
		"ManifestworkApplied": "AsExpected"} {
		env.Eventually(t, func(ctx context.Context) error {
			cond := meta.FindStatusCondition(got.Status.Conditions, kind)
			if cond == nil || cond.Status != metav1.ConditionTrue || cond.Reason != reason || cond.ObservedGeneration != got.Generation {
				return errors.Join(fmt.Errorf("condition %s: %+v", kind, cond), h.Get(ctx, client.ObjectKeyFromObject(set), got))
			}
			return nil
		})
	}
	awaitConfigMap(t, m, name, name+"-1", "1")

	updateSet(t, h, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
		s.Spec.ManifestWorkTemplate.Workload.Manifests = raw(version(name, "2"))
	})
	awaitUpdated(t, h, set, "2", 4, 2)
	awaitSummary(t, h, set, all)
	awaitConfigMap(t, m, name, name+"-2", "2")
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-1"}})

	redecide(t, h, decision, clusters[:2]...)
	awaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, DesiredTotal: 2, Applied: 2, Available: 2, Updated: 2})
	if err := h.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		err := h.Get(ctx, client.ObjectKeyFromObject(set), set)
		if err == nil {
			return errors.New("the set is still there")
		}
		works, listErr := worksOf(ctx, h, set)
		if !apierrors.IsNotFound(err) || listErr != nil || len(works) > 0 {
			t.Fatalf("the set went (%v) before %d works: %v", err, len(works), listErr)
		}
		return nil
	})
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-2"}})
}

// MR-04 MR-05: on the real API server nothing is written when nothing is due, clusters without an agent hold up a
// rollout, and a work goes when its cluster is not selected any more.
func TestReplicaSetWithoutAgents(t *testing.T) {
	t.Parallel()
	const name = "set-silent"
	h := hub.Client(t)
	clusters := clusterNamespaces(t, h, name, 3)
	decision := decide(t, h, name, clusters...)
	set := inTurn(replicaSet(name, name, version(name, "1"), name), 2)
	create(t, h, set)
	awaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, DesiredTotal: 3, Updated: 2})
	works, err := worksOf(t.Context(), h, set)
	if err != nil {
		t.Fatal(err)
	}
	// An edit that is no news, and a drift that is repaired: had the hub written more in between, the generations told.
	updateSet(t, h, set, func(s *workv1alpha1.ManifestWorkReplicaSet) { s.Labels = map[string]string{"team": "a"} })
	drifted := works[0].DeepCopy()
	drifted.Spec.Workload.Manifests = raw(version(name, "drift"))
	if err := h.Patch(t.Context(), drifted, client.MergeFrom(&works[0])); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		now, err := worksOf(ctx, h, set)
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
	redecide(t, h, decision, clusters[2])
	awaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, DesiredTotal: 1, Updated: 1})
	if err := h.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, h, set)
}

// MR-04: a hub that is killed in the middle of a rollout goes on where it was: nobody gets two works, and no more than
// two clusters change at once.
func TestHubKilledWhileRollingOut(t *testing.T) {
	t.Parallel()
	const name, n = "set-crash", 12
	own := env.StartHub(t, "work")
	c := own.Client(t)
	clusters := clusterNamespaces(t, c, name, n)
	decide(t, c, name, clusters...)
	set := inTurn(replicaSet(name, name, version(name, "1"), name), 2)
	create(t, c, set)
	for done := 0; done < n; done += 2 {
		awaitSummary(t, c, set, workv1alpha1.ManifestWorkReplicaSetSummary{
			Total: done + 2, DesiredTotal: n, Applied: done, Available: done, Updated: done + 2,
		})
		works, err := worksOf(t.Context(), c, set)
		if err != nil || len(works) != done+2 {
			t.Fatalf("%d works: %v", len(works), err)
		}
		for i := range works {
			reportApplied(t, c, &works[i])
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
	awaitSummary(t, c, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: n, DesiredTotal: n, Applied: n, Available: n, Updated: n})
}

// reportApplied does what the agent of the work's cluster would, and sets more conditions to True.
func reportApplied(t *testing.T, c client.Client, w *workv1.ManifestWork, more ...string) {
	t.Helper()
	before := w.DeepCopy()
	for _, kind := range append([]string{"Applied", "Available"}, more...) {
		meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "R",
			ObservedGeneration: w.Generation})
	}
	if err := c.Status().Patch(t.Context(), w, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// MR-01 MR-07, contract 10.6: the rights in deploy/ are enough for the life of a set, even of one with an executor.
func testSetsExisting(t *testing.T, existing *env.Server) {
	const name = "set-existing"
	c := existing.Client(t)
	clusters := clusterNamespaces(t, c, name, 2)
	decide(t, c, name, clusters...)
	set := replicaSet(name, name, version(name, "1"), name)
	set.Spec.ManifestWorkTemplate.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "apps", Name: "bot"},
	}}
	create(t, c, set)
	awaitSummary(t, c, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, DesiredTotal: 2, Updated: 2})
	updateSet(t, c, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
		s.Spec.ManifestWorkTemplate.Workload.Manifests = raw(version(name, "2"))
	})
	awaitUpdated(t, c, set, "2", 2, 2)
	if err := c.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, c, set)
	env.Eventually(t, func(ctx context.Context) error {
		if works, err := worksOf(ctx, c, set); err != nil || len(works) > 0 {
			return fmt.Errorf("%d works are left: %w", len(works), err)
		}
		return nil
	})
}

// Gap W11: a rollout that stops is taken back, without a person at the keyboard and without the spec being touched. Rights
// for it are in deploy/.
func testRollback(t *testing.T, server *env.Server, name string, rights ...client.Object) {
	c := server.Client(t)
	clusters := clusterNamespaces(t, c, name, 3)
	decide(t, c, name, clusters...)
	create(t, c, rights...)
	set := inTurn(replicaSet(name, name, version(name, "1"), name), 1)
	set.Annotations = map[string]string{fleet.AnnotationRollback: "true"}
	create(t, c, set)
	for done := 1; done <= 3; done++ {
		awaitUpdated(t, c, set, "1", done, 1)
		works, err := worksOf(t.Context(), c, set)
		if err != nil {
			t.Fatal(err)
		}
		for i := range works {
			reportApplied(t, c, &works[i])
		}
	}
	awaitMessage(t, c, set, "complete: 3 of 3")
	updateSet(t, c, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
		s.Spec.ManifestWorkTemplate.Workload.Manifests = raw(version(name, "2"))
	})
	awaitUpdated(t, c, set, "2", 1, 1)
	works, err := worksOf(t.Context(), c, set)
	if err != nil {
		t.Fatal(err)
	}
	for i := range works {
		if works[i].Generation > 1 {
			reportApplied(t, c, &works[i], "Progressing", "Degraded")
		}
	}
	awaitMessage(t, c, set, "revision 1 is restored")
	awaitUpdated(t, c, set, "1", 3, 3)
	if err := c.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		secrets := &corev1.SecretList{}
		if err := c.List(ctx, secrets, client.InNamespace(name)); err != nil || len(secrets.Items) > 0 {
			return fmt.Errorf("%d Secrets are left: %w", len(secrets.Items), err)
		}
		return nil
	})
}

func TestRollback(t *testing.T) {
	t.Parallel()
	testRollback(t, hub, "set-rollback")
}

// awaitMessage waits until PlacementRolledOut says something.
func awaitMessage(t *testing.T, c client.Client, set *workv1alpha1.ManifestWorkReplicaSet, text string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(set.Status.Conditions, "PlacementRolledOut")
		if cond == nil || !strings.Contains(cond.Message, text) {
			return fmt.Errorf("PlacementRolledOut is %+v, want %q", cond, text)
		}
		return nil
	})
}

// MR-01, gap W8: the example of the docs is one.
func TestReplicaSetExample(t *testing.T) {
	t.Parallel()
	const name = "set-example"
	h := hub.Client(t)
	content, err := os.ReadFile(filepath.Join("..", "..", "deploy", "examples", "manifestworkreplicaset-web.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	if err := yaml.UnmarshalStrict(content, set); err != nil {
		t.Fatal(err)
	}
	clusters := clusterNamespaces(t, h, name, 3)
	decide(t, h, name, clusters...)
	set.Namespace, set.Spec.PlacementRefs[0].Name = name, name
	create(t, h, set)
	awaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, DesiredTotal: 3, Updated: 2})
	works, err := worksOf(t.Context(), h, set)
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
	expectRefusal(t, h.Patch(t.Context(), set,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"capstan.io/overrides":"- set: []"}}}`))),
		apierrors.IsBadRequest, "metadata.annotations[capstan.io/overrides][0]: Required value")
}

// A user who may write sets and Secrets in a namespace, and not execute as any user, prepares a revision for an executor that an
// administrator sets later. The hub has its history, the tenant may have it forgotten.
func TestForgedHistory(t *testing.T) {
	t.Parallel()
	const name = "set-forged"
	h := hub.Client(t)
	clusters := clusterNamespaces(t, h, name, 1)
	decide(t, h, name, clusters...)
	create(t, h,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenant"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenant"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
				Name: "tenant"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "set-forger"}},
		})
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "set-forger", Groups: []string{fleet.GroupAuthenticated}}
	tenant, err := client.New(config, client.Options{Scheme: h.Scheme(), Mapper: h.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	const forged = `[{"revision":1,"hash":"0123456789abcdef","executor":"system:serviceaccount:apps:bot","state":"Good"}]`
	set := replicaSet(name, name, version(name, "1"), name)
	set.Annotations = map[string]string{fleet.AnnotationRollback: "true", fleet.AnnotationRevisions: forged}
	const refusal = "metadata.annotations[capstan.io/revisions]: Forbidden: the hub writes the revisions of a set"
	expectRefusal(t, tenant.Create(t.Context(), set.DeepCopy()), apierrors.IsBadRequest, refusal)
	delete(set.Annotations, fleet.AnnotationRevisions)
	create(t, tenant, set)
	awaitSummary(t, h, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 1, DesiredTotal: 1, Updated: 1})
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
	expectRefusal(t, annotate(fleet.AnnotationRevisions, forged), apierrors.IsBadRequest, refusal)
	updateSet(t, h, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
		s.Spec.ManifestWorkTemplate.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "apps",
				Name: "bot"},
		}}
	})
	expectRefusal(t, annotate(fleet.AnnotationRevisions, forged), apierrors.IsBadRequest,
		"cannot manipulate the Manifestwork with executor system:serviceaccount:apps:bot")
	expectRefusal(t, annotate(fleet.AnnotationRollback, nil), apierrors.IsBadRequest,
		"cannot manipulate the Manifestwork with executor system:serviceaccount:apps:bot")
	env.Eventually(t, func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil || !strings.Contains(set.Annotations[fleet.AnnotationRevisions],
			`"executor":"system:serviceaccount:apps:bot"`) {
			return fmt.Errorf("the hub has noted %q: %w", set.Annotations[fleet.AnnotationRevisions], err)
		}
		return nil
	})
}
