//go:build bench

package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

const (
	// setSize is the number of clusters of the set.
	setSize = 1000
	// clientWriters is how many requests at once the test sends, where it does what the hub or the agents do.
	clientWriters = 16
)

// TestReplicaSet measures one ManifestWorkReplicaSet over many clusters that have no agents: the test reports for them.
// Next to it stands how fast the same API server takes the same works from a client.
func TestReplicaSet(t *testing.T) {
	r := newReport()
	hub := env.StartHub(t, "work")
	c := hub.Client(t)
	clusters := make([]string, setSize)
	for i := range clusters {
		clusters[i] = fmt.Sprintf("c-%04d", i)
	}
	each(t, clusters, func(cluster string) error { return accepted(t.Context(), c, cluster) })
	figure := func(name string, took time.Duration) {
		r.add(fmt.Sprintf("%s, %d clusters", name, setSize), "ms", "", milliseconds([]time.Duration{took})...)
	}

	begin := time.Now()
	each(t, clusters, func(cluster string) error {
		return c.Create(t.Context(), &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "alone"},
			Spec: setTemplate("1")})
	})
	figure("the same works created by a client", time.Since(begin))

	decideOnAll(t, c, clusters)
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "set"}}
	set.Spec.ManifestWorkTemplate = setTemplate("1")
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "all"}}
	begin = time.Now()
	if err := c.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, c, func(s workv1alpha1.ManifestWorkReplicaSetSummary) bool { return s.Updated == setSize })
	figure("set created to all works written", time.Since(begin))

	begin = time.Now()
	reportAll(t, c)
	reported := time.Since(begin)
	awaitSet(t, c, func(s workv1alpha1.ManifestWorkReplicaSetSummary) bool { return s.Applied == setSize })
	figure("all agents report Applied", reported)
	figure("last report to status of the set", time.Since(begin)-reported)

	begin = time.Now()
	patched := client.MergeFrom(set.DeepCopy())
	set.Spec.ManifestWorkTemplate = setTemplate("2")
	if err := c.Patch(t.Context(), set, patched); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, c, func(s workv1alpha1.ManifestWorkReplicaSetSummary) bool { return s.Updated == setSize && s.Applied == 0 })
	figure("template changed to all works written", time.Since(begin))

	begin = time.Now()
	if err := c.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		works := &workv1.ManifestWorkList{}
		if err := c.List(ctx, works, client.HasLabels{fleet.LabelManifestWorkReplicaSet}, client.Limit(1)); err != nil || len(works.Items) > 0 {
			return fmt.Errorf("works are left: %w", err)
		}
		return nil
	})
	figure("set deleted to all works gone", time.Since(begin))
	if err := r.print(os.Stdout); err != nil {
		t.Fatal(err)
	}
	if err := r.write(*out); err != nil {
		t.Fatal(err)
	}
}

func setTemplate(version string) workv1.ManifestWorkSpec {
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"},"data":{"version":%q}}`, version)
	return workv1.ManifestWorkSpec{
		Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}}}
}

func each(t *testing.T, names []string, do func(name string) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(clientWriters)
	for _, name := range names {
		group.Go(func() error { return do(name) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// accepted makes a cluster as the controllers for that would, which do not run.
func accepted(ctx context.Context, c client.Client, name string) error {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	if err := c.Create(ctx, cluster); err != nil {
		return err
	}
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue,
		Reason: fleet.ReasonHubClusterAdminAccepted})
	if err := c.Status().Update(ctx, cluster); err != nil {
		return err
	}
	return c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// decideOnAll is a Placement that selects all clusters.
func decideOnAll(t *testing.T, c client.Client, clusters []string) {
	t.Helper()
	everything := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterSetGlobal}}
	everything.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
		LabelSelector: &metav1.LabelSelector{}}
	for _, o := range []client.Object{
		everything,
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: everything.Name},
			Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: everything.Name}},
		&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "all"}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; len(clusters) > 0; n++ {
		some := clusters[:min(len(clusters), clusterv1beta1.MaxDecisionsPerObject)]
		clusters = clusters[len(some):]
		d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("all-decision-%d", n+1),
			Labels: map[string]string{fleet.LabelPlacement: "all", fleet.LabelDecisionGroupIndex: "0"}}}
		if err := c.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		for _, cluster := range some {
			d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
		}
		if err := c.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// reportAll does what the agents would.
func reportAll(t *testing.T, c client.Client) {
	t.Helper()
	works := &workv1.ManifestWorkList{}
	if err := c.List(t.Context(), works, client.HasLabels{fleet.LabelManifestWorkReplicaSet}); err != nil {
		t.Fatal(err)
	}
	byCluster := map[string]*workv1.ManifestWork{}
	var clusters []string
	for i := range works.Items {
		byCluster[works.Items[i].Namespace] = &works.Items[i]
		clusters = append(clusters, works.Items[i].Namespace)
	}
	each(t, clusters, func(cluster string) error {
		w := byCluster[cluster]
		before := w.DeepCopy()
		for _, kind := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "R",
				ObservedGeneration: w.Generation})
		}
		return c.Status().Patch(t.Context(), w, client.MergeFrom(before))
	})
}

func awaitSet(t *testing.T, c client.Client, done func(workv1alpha1.ManifestWorkReplicaSetSummary) bool) {
	t.Helper()
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "set"}, set); err != nil {
			return err
		}
		if !done(set.Status.Summary) {
			return fmt.Errorf("summary %+v", set.Status.Summary)
		}
		return nil
	})
}
