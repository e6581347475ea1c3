package clusterprofile_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/registration/clusterprofile"
)

// RG-46: an agent that reports something else all the time does not have the hub write a profile in each namespace all the time; what it
// says last is there when it is time.
func TestRestlessClusterIsWrittenNowAndThen(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, clusterv1beta2.AddToScheme, multiclusterv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	set.Spec.ClusterSelector.SelectorType = clusterv1beta2.ExclusiveClusterSetLabel
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "s"}}
	binding.Spec.ClusterSet = "s"
	binding.Status.Conditions = []metav1.Condition{{Type: "Bound", Status: metav1.ConditionTrue}}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1",
		Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": "s"}}}
	writes := 0
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(set, binding,
		cluster).WithStatusSubresource(&multiclusterv1alpha1.ClusterProfile{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				options ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(sub).Patch(ctx, o, p, options...)
			},
		}).Build()
	now := clocktesting.NewFakeClock(time.Now())
	controller := clusterprofile.New(api, events.NewFakeRecorder(1000), clusterprofile.Options{Clock: now})
	reconcile := func() ctrl.Result {
		t.Helper()
		result, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "team", Name: "c1"}})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	var last ctrl.Result
	for i := range 100 {
		cluster.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "a", Value: fmt.Sprint(i)}}
		if err := api.Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		last = reconcile()
	}
	if writes == 0 || writes > 5 {
		t.Errorf("%d writes for 100 reports", writes)
	}
	if last.RequeueAfter == 0 {
		t.Fatal("what was reported last is not written later")
	}
	before := writes
	now.Step(last.RequeueAfter)
	reconcile()
	profile := &multiclusterv1alpha1.ClusterProfile{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "c1"}, profile); err != nil {
		t.Fatal(err)
	}
	if len(profile.Status.Properties) != 1 || profile.Status.Properties[0].Value != "99" || writes != before+1 {
		t.Errorf("after %d writes: %v", writes-before, profile.Status.Properties)
	}
	if result := reconcile(); result.RequeueAfter != 0 || writes != before+1 {
		t.Errorf("nothing has changed, and there are %d writes and %s", writes-before, result.RequeueAfter)
	}
}
