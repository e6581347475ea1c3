package replicaset

import (
	"maps"
	"testing"

	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// MR-02: works have the labels of the set as long as the set has them, whatever else they are labelled with.
func TestLabelsComeAndGo(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", "c1"))...)
	h.reconcile(t)
	w := h.works(t)["c1"][0]
	w.Labels["mine"] = "yes"
	if err := h.Update(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what string
		set  map[string]string
	}{
		{"as they were", map[string]string{"team": "a"}},
		{"one more", map[string]string{"team": "a", "stage": "prod"}},
		{"one less", map[string]string{"stage": "prod"}},
		{"one instead of another", map[string]string{"team": "b"}},
		{"none", nil},
		{"one that a user gave the work", map[string]string{"mine": "no"}},
	} {
		h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Labels = test.set })
		h.reconcile(t)
		want := map[string]string{"mine": "yes", fleet.LabelManifestWorkReplicaSet: "ns.web", fleet.LabelPlacementName: "p"}
		maps.Copy(want, test.set)
		if w := h.works(t)["c1"][0]; !maps.Equal(w.Labels, want) {
			t.Errorf("%s: labels %v, want %v", test.what, w.Labels, want)
		}
		h.writes.Store(0)
		h.reconcile(t)
		if n := h.writes.Load(); n != 0 {
			t.Errorf("%s: %d writes though nothing has changed since", test.what, n)
		}
	}
}

// Works that were written by a hub that kept no note get one, and lose what the set loses from then on.
func TestLabelsOfOlderWorks(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", "c1"))...)
	h.reconcile(t)
	w := h.works(t)["c1"][0]
	delete(w.Annotations, fleet.AnnotationLabelsOfSet)
	if err := h.Update(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Labels = nil })
	h.reconcile(t)
	if w := h.works(t)["c1"][0]; w.Labels["team"] != "" {
		t.Errorf("labels %v though the set has none", w.Labels)
	}
}

// MR-02: "labels of a ManifestWorkReplicaSet make its work one of an add-on": those that mean something to controllers are not given to
// works, and go from works that an earlier hub has given them to.
func TestReservedLabelsStayOnTheSet(t *testing.T) {
	t.Parallel()
	set := webSet(ref("p"))
	set.Labels = map[string]string{
		"team": "a", fleet.LabelAddOnName: "x", fleet.LabelAddOnNamespace: "c2", fleet.LabelWorkPlacement: "ns.q",
		fleet.LabelManifestWorkReplicaSet: "other.set", fleet.LabelPlacementName: "q",
	}
	h := newHub(t, objects(set, decidedPlacement("p", "c1"))...)
	want := map[string]string{"team": "a", fleet.LabelManifestWorkReplicaSet: "ns.web", fleet.LabelPlacementName: "p"}
	expect := func(when string) {
		t.Helper()
		h.reconcile(t)
		w := h.works(t)["c1"][0]
		if !maps.Equal(w.Labels, want) {
			t.Errorf("%s: labels %v, want %v", when, w.Labels, want)
		}
		if note := w.Annotations[fleet.AnnotationLabelsOfSet]; note != "team" {
			t.Errorf("%s: %q are of the set", when, note)
		}
	}
	expect("made")
	w := h.works(t)["c1"][0]
	label(&w, merged(set.Labels, want), set.Labels)
	if err := h.Update(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	expect("made by an earlier hub")
}
