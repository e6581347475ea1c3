package lookup_test

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AM-09, AF-12: the works of an add-on are on its cluster and on its hosting cluster. The agent of any other cluster may label its own
// works as it likes.
func TestWorks(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{workv1.AddToScheme, addonv1beta1.AddToScheme, clusterv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for _, index := range lookup.Indexes() {
		b = b.WithIndex(index.Object, index.Name, index.Values)
	}
	ofC1 := map[string]string{fleet.LabelAddOnName: "hello", fleet.LabelAddOnNamespace: "c1"}
	for cluster, labels := range map[string]map[string]string{"c1": {fleet.LabelAddOnName: "hello"}, "host": ofC1, "c2": ofC1} {
		b = b.WithObjects(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "addon-hello-deploy-0",
			Labels: maps.Clone(labels)}})
	}
	// What a tenant's set has on the cluster says nothing of the add-on.
	b = b.WithObjects(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "of-a-set", Labels: map[string]string{
		fleet.LabelAddOnName: "hello", fleet.LabelManifestWorkReplicaSet: "ns.of-a-set",
	}}})
	c := b.Build()

	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	expect := func(want ...string) {
		t.Helper()
		works, err := lookup.Works(t.Context(), c, addOn)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range works {
			got = append(got, works[i].Namespace)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("works on %v, want those on %v", got, want)
		}
	}
	expect("c1")
	addOn.Annotations = map[string]string{fleet.AnnotationHostingClusterName: "host"}
	expect("c1", "host")
	if _, found := lookup.AddOnOfWork(client.Object(&workv1.ManifestWork{})); found {
		t.Error("a work without labels has an add-on")
	}
}

// AM-05: while it is not known what a placement selects, it may apply on the clusters of those before it, and on clusters of none.
func TestUnresolved(t *testing.T) {
	t.Parallel()
	known, next := &lookup.Placement{}, &lookup.Placement{}
	unknown, other := &lookup.Placement{Unknown: "it is gone"}, &lookup.Placement{Unknown: "it is undecided"}
	for name, test := range map[string]struct {
		placements    []*lookup.Placement
		applies, want *lookup.Placement
	}{
		"there are none":            {nil, nil, nil},
		"all are known":             {[]*lookup.Placement{known, next}, known, nil},
		"all are known, none":       {[]*lookup.Placement{known, next}, nil, nil},
		"one before":                {[]*lookup.Placement{unknown, known}, known, nil},
		"one before, none":          {[]*lookup.Placement{unknown, known}, nil, unknown},
		"one after":                 {[]*lookup.Placement{known, unknown}, known, unknown},
		"one after, further on":     {[]*lookup.Placement{known, next, unknown, other}, known, unknown},
		"one between, the last":     {[]*lookup.Placement{known, unknown, next}, next, nil},
		"one on both sides":         {[]*lookup.Placement{unknown, known, other}, known, other},
		"one on both sides of none": {[]*lookup.Placement{unknown, known, other}, nil, unknown},
	} {
		if got := lookup.Unresolved(test.placements, test.applies); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		if all := lookup.AllResolved(test.placements); all == slices.ContainsFunc(test.placements,
			func(p *lookup.Placement) bool { return p.Unknown != "" }) {
			t.Errorf("%s: all are resolved: %t", name, all)
		}
	}
}
