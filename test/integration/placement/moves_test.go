package placement

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// With a taint, a work moves to another cluster, and goes from the one that has the taint when it is available there. The log says how long
// that takes.
func TestMoveOfATaintedCluster(t *testing.T) {
	t.Parallel()
	const name = "moves"
	h := env.StartHub(t, "").Client(t)
	framework.Create(t, h, framework.AcceptedCluster("paris"), framework.AcceptedCluster("rome"))
	for _, cluster := range []string{"paris", "rome"} {
		framework.AwaitHubAccepted(t, h, cluster, metav1.ConditionTrue, "HubClusterAdminAccepted")
	}
	framework.Namespace(t, h, name)
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	placement.Spec.NumberOfClusters = ptr.To[int32](1)
	placement.Spec.Tolerations = []clusterv1beta1.Toleration{ // there are no agents
		{Key: "cluster.open-cluster-management.io/unreachable", Operator: clusterv1beta1.TolerationOpExists}}
	set := framework.ReplicaSet(name, name, framework.SetManifest(name, "1"), name)
	set.Annotations = map[string]string{"capstan.io/graceful-move": "true"}
	framework.Create(t, h, framework.SetBinding(name, "global", "global"), placement, set)

	old := awaitWorks(t, h, set, 1)[0]
	makeAvailable(t, h, old)
	begin := time.Now()
	framework.MergePatch(t, h, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: old.Namespace}},
		`{"spec":{"taints":[{"key":"maintenance","effect":"NoSelect"}]}}`)
	both := awaitWorks(t, h, set, 2)
	t.Logf("the other cluster has the work after %s", time.Since(begin))
	for i := range both {
		if both[i].Namespace != old.Namespace {
			makeAvailable(t, h, both[i])
		}
	}
	framework.AwaitGone(t, h, &old)
}

// PL-06 MR-05: the placement tolerates the taint of a cluster for a time. A work stays there until that is over, and has moved then.
func TestMigrationAfterTolerationSeconds(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Second
	s := framework.NewSite(t, "place-migrates")
	for _, end := range []string{"a", "b"} {
		cluster := framework.AcceptedCluster(s.Name + "-" + end)
		cluster.Labels = map[string]string{fleet.LabelClusterSet: s.Name}
		framework.Create(t, s.C, cluster)
		framework.AwaitHubAccepted(t, s.C, cluster.Name, metav1.ConditionTrue, "HubClusterAdminAccepted")
	}
	s.Place(t, "web", framework.SteadyOne(framework.Tolerant, clusterv1beta1.Toleration{Key: "maintenance",
		Operator: clusterv1beta1.TolerationOpExists, TolerationSeconds: ptr.To(int64(delay.Seconds()))}))
	s.Await(t, "web", "a")
	set := framework.ReplicaSet(s.Name, "web", framework.SetManifest(s.Name, "1"), "web")
	framework.Create(t, s.C, set)
	old := awaitWorks(t, s.C, set, 1)[0]
	if old.Namespace != s.Name+"-a" {
		t.Fatalf("the work is on %s, but a is selected", old.Namespace)
	}
	s.Taint(t, "a", clusterv1.Taint{Key: "maintenance", Effect: clusterv1.TaintEffectNoSelect})
	env.Eventually(t, func(ctx context.Context) error {
		works, err := framework.WorksOf(ctx, s.C, set)
		if err != nil {
			return err
		}
		for i := range works {
			if works[i].Namespace == s.Name+"-b" {
				return nil
			}
		}
		return fmt.Errorf("%d works, none of them on b", len(works))
	})
	s.ExpectDelay(t, "a", "maintenance", delay)
	framework.AwaitGone(t, s.C, &old)
	if moved := awaitWorks(t, s.C, set, 1)[0]; moved.Namespace != s.Name+"-b" {
		t.Errorf("the work is on %s, want it on b", moved.Namespace)
	}
}

// awaitWorks waits until a set has a number of works.
func awaitWorks(t *testing.T, h client.Client, set *workv1alpha1.ManifestWorkReplicaSet, want int) (works []workv1.ManifestWork) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) (err error) {
		if works, err = framework.WorksOf(ctx, h, set); err != nil {
			return err
		}
		if len(works) != want {
			return fmt.Errorf("%d works, want %d", len(works), want)
		}
		return nil
	})
	return works
}

// makeAvailable reports what the agent of a cluster does once it has a work.
func makeAvailable(t *testing.T, h client.Client, work workv1.ManifestWork) {
	t.Helper()
	before := work.DeepCopy()
	for _, kind := range []string{"Applied", "Available"} {
		work.Status.Conditions = append(work.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "R",
			ObservedGeneration: work.Generation, LastTransitionTime: metav1.Now()})
	}
	if err := h.Status().Patch(t.Context(), &work, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
