package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// ReplicaSet makes a set of one manifest in JSON.
func ReplicaSet(namespace, name, manifest string, placements ...string) *workv1alpha1.ManifestWorkReplicaSet {
	s := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.ManifestWorkTemplate.Workload.Manifests = RawManifests(manifest)
	for _, p := range placements {
		s.Spec.PlacementRefs = append(s.Spec.PlacementRefs, workv1alpha1.LocalPlacementReference{Name: p})
	}
	return s
}

// SetManifest is a manifest of the set of a name. Each version is an object of its own: the clusters of a test are one cluster, and their
// works would fight over it.
func SetManifest(name, value string) string { return ConfigMap(name, name+"-"+value, value) }

// InTurn lets so many clusters of the only placement begin at once.
func InTurn(s *workv1alpha1.ManifestWorkReplicaSet, concurrency int) *workv1alpha1.ManifestWorkReplicaSet {
	n := intstr.FromInt(concurrency)
	s.Spec.PlacementRefs[0].RolloutStrategy = clusterv1alpha1.RolloutStrategy{
		Type: clusterv1alpha1.Progressive, Progressive: &clusterv1alpha1.RolloutProgressive{MaxConcurrency: &n},
	}
	return s
}

// Decide makes a namespace with a Placement of its name that has decided on clusters, with all clusters bound to it. Experimental
// scheduling is off for it: the test is the scheduler.
func Decide(t *testing.T, c client.Client, namespace string, clusters ...string) *clusterv1beta1.PlacementDecision {
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
	Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		SetBinding(namespace, fleet.ClusterSetGlobal, fleet.ClusterSetGlobal), p)
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace + "-decision-1",
		Labels: map[string]string{
			fleet.LabelPlacement: p.Name, fleet.LabelDecisionGroupIndex: "0", fleet.LabelDecisionGroupName: "",
		}}}
	Create(t, c, d)
	Redecide(t, c, d, clusters...)
	return d
}

// Redecide changes which clusters a placement has decided for.
func Redecide(t *testing.T, c client.Client, d *clusterv1beta1.PlacementDecision, clusters ...string) {
	t.Helper()
	d.Status.Decisions = []clusterv1beta1.ClusterDecision{}
	for _, cluster := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
	}
	if err := c.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// ClusterNamespaces makes clusters as far as works are concerned: accepted, whether or not the hub has the controllers for that.
func ClusterNamespaces(t *testing.T, c client.Client, prefix string, n int) (names []string) {
	t.Helper()
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
		cluster := AcceptedCluster(names[i])
		Create(t, c, cluster)
		err := c.Status().Patch(t.Context(), cluster, Merge(`{"status":{"conditions":[{"type":"HubAcceptedManagedCluster","status":"True",`+
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

// WorksOf are the works of a set.
func WorksOf(ctx context.Context, c client.Client, s *workv1alpha1.ManifestWorkReplicaSet) ([]workv1.ManifestWork, error) {
	list := &workv1.ManifestWorkList{}
	err := c.List(ctx, list, client.MatchingLabels{"work.open-cluster-management.io/manifestworkreplicaset": s.Namespace + "." + s.Name})
	return list.Items, err
}

// AwaitSummary waits until the set has the summary, and returns the set.
func AwaitSummary(t *testing.T, c client.Client, s *workv1alpha1.ManifestWorkReplicaSet,
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

// UpdateSet edits a set, whichever other writers there are.
func UpdateSet(t *testing.T, c client.Client, s *workv1alpha1.ManifestWorkReplicaSet, edit func(*workv1alpha1.ManifestWorkReplicaSet)) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		edit(s)
		return c.Update(ctx, s)
	})
}

// AwaitUpdated waits until so many works of the set have the present template, and fails if there are ever more that
// are not done with it than may be.
func AwaitUpdated(t *testing.T, c client.Client, s *workv1alpha1.ManifestWorkReplicaSet, value string, want, concurrency int) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		works, err := WorksOf(ctx, c, s)
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

// ReportApplied does what the agent of the cluster of a work would, and sets more conditions to True.
func ReportApplied(t *testing.T, c client.Client, w *workv1.ManifestWork, more ...string) {
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

// CheckRollback has a rollout stop, which is taken back, without a person at the keyboard and without the spec being touched. The
// rights for it are in deploy/.
func CheckRollback(t *testing.T, server *env.Server, name string, rights ...client.Object) {
	c := server.Client(t)
	clusters := ClusterNamespaces(t, c, name, 3)
	Decide(t, c, name, clusters...)
	Create(t, c, rights...)
	set := InTurn(ReplicaSet(name, name, SetManifest(name, "1"), name), 1)
	set.Annotations = map[string]string{fleet.AnnotationRollback: "true"}
	Create(t, c, set)
	for done := 1; done <= 3; done++ {
		AwaitUpdated(t, c, set, "1", done, 1)
		works, err := WorksOf(t.Context(), c, set)
		if err != nil {
			t.Fatal(err)
		}
		for i := range works {
			ReportApplied(t, c, &works[i])
		}
	}
	awaitMessage(t, c, set, "complete: 3 of 3")
	UpdateSet(t, c, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
		s.Spec.ManifestWorkTemplate.Workload.Manifests = RawManifests(SetManifest(name, "2"))
	})
	AwaitUpdated(t, c, set, "2", 1, 1)
	works, err := WorksOf(t.Context(), c, set)
	if err != nil {
		t.Fatal(err)
	}
	for i := range works {
		if works[i].Generation > 1 {
			ReportApplied(t, c, &works[i], "Progressing", "Degraded")
		}
	}
	awaitMessage(t, c, set, "revision 1 is restored")
	AwaitUpdated(t, c, set, "1", 3, 3)
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
