//go:build bench

package bench

import (
	"context"
	"flag"
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

var setSize = flag.Int("sets", 1000, "how many clusters without agents TestReplicaSet has")

const (
	// clientWriters is how many requests at once the test sends, where it does what the hub or the agents do.
	clientWriters = 16
	// writeEach is what each work adds to how long the hub may take for all of them.
	writeEach = 20 * time.Millisecond
	// shareTarget is the least that a changed set should reach of the rate of plain writes, in percent.
	shareTarget = "≥80"
)

// TestReplicaSet measures one ManifestWorkReplicaSet over many clusters that have no agents: the test reports for them.
// Next to it stands how fast the same API server takes the same works from a client.
func TestReplicaSet(t *testing.T) {
	size := *setSize
	if size < 1 {
		t.Fatalf("-sets %d is no number of clusters; use one from 1", size)
	}
	r := newReport()
	hub := env.StartHub(t, "work")
	c := hub.Client(t)
	clusters := make([]string, size)
	for i := range clusters {
		clusters[i] = fmt.Sprintf("c-%04d", i)
	}
	each(t, clusters, func(cluster string) error { return accepted(t.Context(), c, cluster) })
	add := func(name, unit, target string, value float64) {
		r.add(fmt.Sprintf("%d clusters: %s", size, name), unit, target, value)
	}
	figure := func(name string, took time.Duration) { add(name, "s", "", took.Seconds()) }

	created, changed := plainWorks(t, c, clusters)
	figure("the same works created by a client", created)
	figure("the same works changed by a client", changed)

	decideOnAll(t, c, clusters)
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "set"}}
	set.Spec.ManifestWorkTemplate = setTemplate("1")
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "all"}}
	written := func(name, target string, plain, took time.Duration) {
		figure(name, took)
		add(name+": of the rate of plain writes", "%", target, 100*plain.Seconds()/took.Seconds())
	}
	begin := time.Now()
	if err := c.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, c, size, func(s workv1alpha1.ManifestWorkReplicaSetSummary) bool { return s.Updated == size })
	written("set created to all works written", "", created, time.Since(begin))

	begin = time.Now()
	reportAll(t, c)
	reported := time.Since(begin)
	awaitSet(t, c, size, func(s workv1alpha1.ManifestWorkReplicaSetSummary) bool { return s.Applied == size })
	figure("all agents report Applied", reported)
	figure("last report to status of the set", time.Since(begin)-reported)

	begin = time.Now()
	patched := client.MergeFrom(set.DeepCopy())
	set.Spec.ManifestWorkTemplate = setTemplate("2")
	if err := c.Patch(t.Context(), set, patched); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, c, size, func(s workv1alpha1.ManifestWorkReplicaSetSummary) bool { return s.Updated == size && s.Applied == 0 })
	written("set changed to all works written", shareTarget, changed, time.Since(begin))

	begin = time.Now()
	if err := c.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	env.EventuallyAfter(t, time.Duration(size)*writeEach, func(ctx context.Context) error {
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

// plainWorks creates and then changes the works of a set as a client, and returns how long each took. They stay, but are none of a set's.
func plainWorks(t *testing.T, c client.Client, clusters []string) (created, changed time.Duration) {
	t.Helper()
	works := map[string]*workv1.ManifestWork{}
	for _, cluster := range clusters {
		works[cluster] = &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "alone"}, Spec: setTemplate("1")}
	}
	begin := time.Now()
	each(t, clusters, func(cluster string) error { return c.Create(t.Context(), works[cluster]) })
	created = time.Since(begin)
	begin = time.Now()
	each(t, clusters, func(cluster string) error {
		works[cluster].Spec = setTemplate("2")
		return c.Update(t.Context(), works[cluster])
	})
	return created, time.Since(begin)
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

// awaitSet waits for the summary of a set of so many works.
func awaitSet(t *testing.T, c client.Client, works int, done func(workv1alpha1.ManifestWorkReplicaSetSummary) bool) {
	t.Helper()
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	env.EventuallyAfter(t, time.Duration(works)*writeEach, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "set"}, set); err != nil {
			return err
		}
		if !done(set.Status.Summary) {
			return fmt.Errorf("summary %+v", set.Status.Summary)
		}
		return nil
	})
}
