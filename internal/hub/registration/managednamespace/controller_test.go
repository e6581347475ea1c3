package managednamespace_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/hub/registration/managednamespace"
)

// RG-43: status.managedNamespaces is in the order of sets and names; what the agent has said of an entry stays with it, and goes with it.
func TestManagedNamespaces(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, clusterv1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	applied := []metav1.Condition{{Type: "NamespaceAvailable", Status: "True", Reason: "NamespaceApplied",
		LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC).Local())}}
	entry := func(set, name string, conditions []metav1.Condition) clusterv1.ClusterSetManagedNamespaceStatus {
		return clusterv1.ClusterSetManagedNamespaceStatus{ClusterSet: set, Name: name, Conditions: conditions}
	}
	type list = []clusterv1.ClusterSetManagedNamespaceStatus
	set := func(name string, selector clusterv1beta2.ManagedClusterSelector, namespaces ...string) *clusterv1beta2.ManagedClusterSet {
		s := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: selector}}
		for _, ns := range namespaces {
			s.Spec.ManagedNamespaces = append(s.Spec.ManagedNamespaces, clusterv1beta2.ManagedNamespaceConfig{Name: ns})
		}
		return s
	}
	own := clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.ExclusiveClusterSetLabel}
	all := clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{}}
	for name, test := range map[string]struct {
		sets   []client.Object
		before list
		want   list
	}{
		"none": {nil, nil, nil},
		"in order": {[]client.Object{set("s", own, "b", "a"), set("all", all, "z")}, nil,
			list{entry("all", "z", nil), entry("s", "a", nil), entry("s", "b", nil)}},
		"of one more set": {[]client.Object{set("s", own, "a"), set("all", all, "a")}, list{entry("s", "a", applied)},
			list{entry("all", "a", nil), entry("s", "a", applied)}},
		"no longer":      {[]client.Object{set("s", own)}, list{entry("s", "a", applied)}, nil},
		"of another set": {[]client.Object{set("other", own, "a")}, list{entry("s", "a", applied)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1",
				Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": "s"}}}
			cluster.Status.ManagedNamespaces = test.before
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).WithObjects(test.sets...).WithStatusSubresource(cluster).Build()
			if _, err := managednamespace.New(c, events.NewFakeRecorder(10)).Reconcile(t.Context(),
				ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, cluster.Status.ManagedNamespaces); diff != "" {
				t.Error(diff)
			}
		})
	}
}
