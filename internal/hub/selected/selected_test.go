package selected_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/hub/selected"
)

func cluster(name, set string, edits ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": set}}}
	c.Spec.HubAcceptsClient = true
	c.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func undecided(c *clusterv1.ManagedCluster) {
	c.Spec.HubAcceptsClient, c.Status.Conditions = false, nil
}

func denied(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }

func deleting(c *clusterv1.ManagedCluster) {
	now := metav1.Now()
	c.DeletionTimestamp, c.Finalizers = &now, []string{"example.com/held"}
}

// restored comes from a backup without status.
func restored(c *clusterv1.ManagedCluster) { c.Status.Conditions = nil }

func labelled(key, value string) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) { c.Labels[key] = value }
}

func set(name string) *clusterv1beta2.ManagedClusterSet {
	return &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func binding(namespace, name string) *clusterv1beta2.ManagedClusterSetBinding {
	return &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: name}}
}

// decision is a PlacementDecision of a user with the right to write these in the namespace.
func decision(clusters ...string) []clusterv1beta1.PlacementDecision {
	d := clusterv1beta1.PlacementDecision{}
	for _, name := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: name})
	}
	return []clusterv1beta1.PlacementDecision{d}
}

// "Act only on clusters that exist, are accepted and are in a set bound to that namespace, whoever wrote the decision."
func TestForgedDecisions(t *testing.T) {
	t.Parallel()
	regional := set("regional")
	regional.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{
		SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}
	broken := set("broken")
	broken.Spec.ClusterSelector.SelectorType = "Nonsense"
	objects := []client.Object{
		set("mine"), set("theirs"), regional, broken,
		binding("tenant", "mine"), binding("tenant", "regional"), binding("tenant", "broken"), binding("tenant", "no-such-set"),
		binding("elsewhere", "theirs"),
		cluster("good", "mine"), cluster("eu", "theirs", labelled("region", "eu")),
		cluster("theirs", "theirs"), cluster("in-broken", "broken"), cluster("in-none", "no-such-set"),
		cluster("undecided", "mine", undecided), cluster("denied", "mine", denied), cluster("deleting", "mine", deleting),
		cluster("restored", "mine", restored), cluster("restored-theirs", "theirs", restored),
	}
	named := []string{"good", "eu", "theirs", "in-broken", "in-none", "undecided", "denied", "deleting", "kube-system", "no-such-cluster",
		"restored", "restored-theirs"}
	const unbound = "it is in no ManagedClusterSet with a ManagedClusterSetBinding in namespace tenant"
	for name, test := range map[string]struct {
		namespace string
		trust     bool
		want      string
		passed    map[string]string
	}{
		"a tenant": {namespace: "tenant", want: "eu good", passed: map[string]string{
			"theirs": unbound, "in-broken": unbound, "in-none": unbound,
			"restored": "it is accepted, and the hub is about to set it up", "restored-theirs": unbound,
			"undecided": "it is not accepted yet", "denied": "it is denied", "deleting": "it is being deleted",
			"kube-system": "there is no such ManagedCluster", "no-such-cluster": "there is no such ManagedCluster",
		}},
		"a namespace without a set": {namespace: "unbound", want: ""},
		"another namespace":         {namespace: "elsewhere", want: "eu theirs"},
		"a hub that trusts decisions": {namespace: "unbound", trust: true,
			want: "deleting denied eu good in-broken in-none kube-system no-such-cluster restored restored-theirs theirs undecided"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader := selected.Reader{Client: fakeAPI(t, objects...), Trust: test.trust}
			clusters, passedOver, err := reader.Clusters(t.Context(), test.namespace, decision(named...))
			if err != nil {
				t.Fatal(err)
			}
			if byName, _, err := reader.Named(t.Context(), test.namespace, named...); err != nil || !slices.Equal(byName, clusters) {
				t.Errorf("by name it acts on %v, error %v", byName, err)
			}
			var got []string
			for _, c := range clusters {
				got = append(got, c.Name)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("acts on %q, want %q", got, test.want)
			}
			if !test.trust && len(passedOver)+len(got) != len(named) {
				t.Errorf("passes over %v", passedOver)
			}
			for _, cluster := range named {
				if keeps := passedOver.Keeps(cluster); test.passed != nil && keeps != (cluster == "restored") {
					t.Errorf("that %s keeps what it has is %t", cluster, keeps)
				}
			}
			for cluster, reason := range test.passed {
				if passedOver[cluster] != reason {
					t.Errorf("%s is passed over because %q, want %q", cluster, passedOver[cluster], reason)
				}
			}
		})
	}
}

// Events match that may change whether the hub acts on a cluster; those of labels with the state of add-ons do not.
func TestClusterChanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after *clusterv1.ManagedCluster
		want          bool
	}{
		"accepted":        {cluster("c", "s", undecided), cluster("c", "s"), true},
		"denied":          {cluster("c", "s"), cluster("c", "s", denied), true},
		"deleted":         {cluster("c", "s"), cluster("c", "s", deleting), true},
		"in another set":  {cluster("c", "s"), cluster("c", "other"), true},
		"another label":   {cluster("c", "s"), cluster("c", "s", labelled("region", "eu")), true},
		"an add-on is up": {cluster("c", "s"), cluster("c", "s", labelled("feature.open-cluster-management.io/addon-a", "available")), false},
		"a heartbeat":     {cluster("c", "s"), cluster("c", "s"), false},
	} {
		if got := selected.ClusterChanged().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What decided.All reads of a placement is watched.
func TestPlacementChanged(t *testing.T) {
	t.Parallel()
	scheduled := func(number int32) *clusterv1beta1.Placement {
		return &clusterv1beta1.Placement{Status: clusterv1beta1.PlacementStatus{
			NumberOfSelectedClusters: number, Conditions: []metav1.Condition{{Type: "PlacementSatisfied", Status: metav1.ConditionFalse}}}}
	}
	edited := scheduled(1)
	edited.Generation = 2
	for name, test := range map[string]struct {
		before, after *clusterv1beta1.Placement
		want          bool
	}{
		"nothing":        {scheduled(2), scheduled(2), false},
		"scheduled":      {&clusterv1beta1.Placement{}, scheduled(0), true},
		"fewer clusters": {scheduled(2), scheduled(1), true},
		"more clusters":  {scheduled(1), scheduled(2), false},
		"the spec":       {scheduled(1), edited, true},
	} {
		if got := selected.PlacementChanged().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// fakeAPI answers with copies of the objects: the fake client sets the resource version of those that it is built with, and tests
// in parallel share theirs.
func fakeAPI(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, clusterv1beta1.AddToScheme, clusterv1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, object := range objects {
		builder.WithObjects(object.DeepCopyObject().(client.Object))
	}
	return builder.Build()
}
