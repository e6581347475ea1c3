package placement

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	scheduler "github.com/capstan-io/capstan/internal/placement"
)

// newWaitingExplainer is the explainer of a replica that does not lead, for an API with the cluster a in the set of the namespace team-a.
func newWaitingExplainer(t *testing.T, funcs interceptor.Funcs) (*explainer, *controllerTest) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, clusterv1alpha1.AddToScheme, clusterv1beta1.AddToScheme,
		clusterv1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(funcs).WithObjects(
		&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}},
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "set"},
			Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: "set"}},
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{fleet.LabelClusterSet: "set"},
			Annotations: map[string]string{"text": strings.Repeat("a", 8_000_000)}}},
	).Build()
	b := newControllerTest(t, interceptor.Funcs{})
	return newExplainer(b.Controller, api, scheduler.Options{}), b
}

// costly is a placement with expressions that cost more than a namespace may use at once.
func costly() *clusterv1beta1.Placement {
	p := withCEL(0)
	selector := &p.Spec.Predicates[0].RequiredClusterSelector.CelSelector
	for i := range 4 {
		selector.CelExpressions = append(selector.CelExpressions, fmt.Sprintf(`!managedCluster.metadata.annotations.text.contains("%d")`, i+1))
	}
	return p
}

// The explanations of a replica that does not lead have a budget together, which is refilled with the time.
func TestExplanationsWithoutLeadership(t *testing.T) {
	t.Parallel()
	e, b := newWaitingExplainer(t, interceptor.Funcs{})
	explain := func() *scheduler.Result {
		explanation, err := e.Explain(t.Context(), costly())
		if err != nil {
			t.Fatal(err)
		}
		return explanation.Result
	}
	if result := explain(); result.Pending || result.Selected != 1 {
		t.Errorf("the first is explained as %+v", result)
	}
	if result := explain(); !result.Pending {
		t.Errorf("the second is explained as %+v", result)
	}
	b.clock.Step(time.Minute)
	if result := explain(); result.Pending || result.Selected != 1 {
		t.Errorf("later it is explained as %+v", result)
	}
}

// A replica that does not lead reads the fleet for one explanation at a time.
func TestExplanationsWithoutLeadershipTakeTurns(t *testing.T) {
	t.Parallel()
	reading, read := make(chan struct{}), make(chan struct{})
	reads := 0
	e, _ := newWaitingExplainer(t, interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if reads++; reads == 1 {
				close(reading)
				<-read
			}
			return api.List(ctx, list, opts...)
		},
	})
	first := make(chan error, 1)
	go func() {
		_, err := e.Explain(t.Context(), newPlacement(clusterv1beta1.PlacementSpec{}))
		first <- err
	}()
	<-reading
	impatient, leave := context.WithCancel(t.Context())
	leave()
	if _, err := e.Explain(impatient, newPlacement(clusterv1beta1.PlacementSpec{})); !errors.Is(err, context.Canceled) || reads != 1 {
		t.Errorf("%v after %d reads", err, reads)
	}
	close(read)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := e.Explain(t.Context(), newPlacement(clusterv1beta1.PlacementSpec{})); err != nil {
		t.Error(err)
	}
}
