package replicaset

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// inRegion is a cluster with the claim region, or without it if that is empty.
func inRegion(name, region string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if region != "" {
		c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "region", Value: region}}
	}
	return c
}

// claim gives a cluster the claim region.
func (h *hub) claim(t *testing.T, name, region string) {
	t.Helper()
	if err := h.Delete(t.Context(), inRegion(name, "")); err != nil {
		t.Fatal(err)
	}
	h.create(t, inRegion(name, region))
}

// Gap W8: each cluster gets its own values, a cluster that lacks one gets nothing and is named, and follows when it has it.
func TestOverrides(t *testing.T) {
	t.Parallel()
	set := webSet(ref("p"))
	set.Annotations = map[string]string{
		fleet.AnnotationOverrides: `[{manifest: {kind: ConfigMap}, set: [{path: /data/region, claim: region}, {path: /data/cluster, clusterName: true}]}]`}
	h := newHub(t, append(objects(set, decidedPlacement("p", "c1", "c2", "c3")),
		inRegion("c1", "eu"), inRegion("c2", "us"), inRegion("c3", ""))...)
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
	for name, region := range map[string]string{"c1": "eu", "c2": "us"} {
		raw := string(h.works(t)[name][0].Spec.Workload.Manifests[0].Raw)
		if !strings.Contains(raw, `"region":"`+region+`"`) || !strings.Contains(raw, `"cluster":"`+name+`"`) ||
			!strings.Contains(raw, `"version":"1"`) {
			t.Errorf("%s has %s", name, raw)
		}
	}
	if message := h.expectCondition(t, "ManifestworkApplied", metav1.ConditionFalse, "NotAsExpected"); !strings.Contains(message,
		"cluster c3 has no claim region") {
		t.Errorf("message %q", message)
	}
	if sum := h.set(t).Status.Summary; sum.Updated != 2 || sum.Total != 2 || sum.DesiredTotal != 3 {
		t.Errorf("summary %+v", sum)
	}
	h.writes.Store(0)
	if h.reconcile(t); h.writes.Load() > 0 {
		t.Error("it is written though nothing has changed")
	}
	if found := h.ofCluster(t.Context(), inRegion("c3", "ap")); len(found) != 1 || found[0].Name != "web" {
		t.Errorf("a cluster that changes is taken for one of %v", found)
	}
	h.claim(t, "c3", "ap")
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2", "c3")
}

// MR-04, gap W8: a template does not pass a mandatory group in which no cluster can have it, because a value is missing there.
func TestOverridesOfCanaries(t *testing.T) {
	t.Parallel()
	canary := progressive(1, clusterv1alpha1.RolloutConfig{})
	canary.RolloutStrategy.Progressive.MandatoryDecisionGroups = mandatory(0)
	set := webSet(canary)
	set.Annotations = map[string]string{fleet.AnnotationOverrides: `[{set: [{path: /data/region, claim: region}]}]`}
	h := newHub(t, append(objects(set, decidedPlacement("p", "c1")), decision("p", 2, 1, "c2"), inRegion("c1", ""), inRegion("c2", "us"))...)
	h.reconcile(t)
	h.expectClusters(t)
	h.expectCondition(t, "ManifestworkApplied", metav1.ConditionFalse, "NotAsExpected")
	if message := h.expectCondition(t, "PlacementRolledOut", metav1.ConditionFalse, "Progressing"); !strings.Contains(message,
		"the works of c1 cannot be written: ManifestworkApplied says why") {
		t.Errorf("message %q", message)
	}
	h.claim(t, "c1", "eu")
	h.reconcile(t)
	h.expectClusters(t, "c1")
	h.report(t, []string{"c1"}, "Applied", "True", "Progressing", "False")
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2")
}

// Gap W11: a revision is not good while a cluster lacks a value for it, and so may not take it well.
func TestNoGoodRevisionWithoutValues(t *testing.T) {
	t.Parallel()
	set := webSet(ref("p"))
	set.Annotations = map[string]string{fleet.AnnotationRollback: "true",
		fleet.AnnotationOverrides: `[{set: [{path: /data/region, claim: region}]}]`}
	h := newHub(t, append(objects(set, decidedPlacement("p", "c1", "c2")), inRegion("c1", ""), inRegion("c2", "us"))...)
	for _, state := range []revisionState{"", good} {
		for range 2 {
			h.reconcile(t)
			h.report(t, []string{"c1", "c2"}, "Applied", "True", "Progressing", "False")
		}
		h.reconcile(t)
		if got := h.history(t).current().State; got != state {
			t.Errorf("the revision is %q, want %q", got, state)
		}
		h.claim(t, "c1", "eu")
	}
}

// Overrides that admission did not see change nothing, and say so.
func TestBrokenOverrides(t *testing.T) {
	t.Parallel()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", "c1"))...)
	h.reconcile(t)
	set := h.set(t)
	set.Annotations = map[string]string{fleet.AnnotationOverrides: `[{set: [{path: x}]}]`}
	set.Spec.ManifestWorkTemplate = template("2")
	if err := h.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	if h.versions(t)["c1"] != "1" {
		t.Errorf("versions %v", h.versions(t))
	}
	if message := h.expectCondition(t, "ManifestworkApplied", metav1.ConditionFalse, "NotAsExpected"); !strings.Contains(message,
		"metadata.annotations[capstan.io/overrides][0].set[0].path") {
		t.Errorf("message %q", message)
	}
}
