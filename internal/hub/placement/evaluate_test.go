package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// withCEL is a placement with a unique expression that searches the annotation text, at the cost of that.
func withCEL(i int) *clusterv1beta1.Placement {
	expression := fmt.Sprintf(`!managedCluster.metadata.annotations.text.contains("%d")`, i)
	p := newPlacement(clusterv1beta1.PlacementSpec{Predicates: []clusterv1beta1.ClusterPredicate{{
		RequiredClusterSelector: clusterv1beta1.ClusterSelector{
			CelSelector: clusterv1beta1.ClusterCelSelector{CelExpressions: []string{expression}}},
	}}})
	p.Name = fmt.Sprintf("web-%d", i)
	return p
}

// Nothing is written about a placement before its expressions are evaluated, which happens in the background. Placements whose
// namespace has no budget left get an event, and are scheduled later.
func TestExpressionsDoNotBlockDecisions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 4
		var objects []client.Object
		for i := range many {
			objects = append(objects, withCEL(i))
		}
		b := newControllerTest(t, interceptor.Funcs{}, objects...)
		b.Controller.clock = clock.RealClock{}
		b.scheduler.Advance(b.Controller.clock.Now())
		for _, name := range []string{"a", "b"} {
			b.scheduler.SetCluster(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{fleet.LabelClusterSet: "set"},
				Annotations: map[string]string{"text": strings.Repeat("a", 8_000_000)},
			}})
		}
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if err := b.runEvaluators(ctx, q); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i := range many {
			b.scheduler.SetPlacement(withCEL(i))
			q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(withCEL(i))})
		}
		decided := map[string]bool{}
		for len(decided) < many {
			request, _ := q.Get()
			if _, err := b.Reconcile(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			q.Done(request)
			p := &clusterv1beta1.Placement{}
			if err := b.client.Get(t.Context(), request.NamespacedName, p); err != nil {
				t.Fatal(err)
			}
			if len(p.Status.Conditions) > 0 {
				decided[p.Name] = p.Status.NumberOfSelectedClusters == 2
			}
		}
		for name, all := range decided {
			if !all {
				t.Errorf("%s has not selected both clusters", name)
			}
		}
		said := func(event string) bool { return strings.Contains(event, fleet.EventCELBudgetExceeded) }
		if recorded := b.recordedEvents(); !slices.ContainsFunc(recorded, said) {
			t.Errorf("no event says that it waits: %q", recorded)
		}
	})
}
