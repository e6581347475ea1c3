package replicaset

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Gap W8: each cluster gets its own values, a cluster that lacks one gets nothing and is named, and follows when it has it.
func TestOverrides(t *testing.T) {
	t.Parallel()
	set := webSet(ref("p"))
	set.Annotations = map[string]string{
		fleet.AnnotationOverrides: `[{manifest: {kind: ConfigMap}, set: [{path: /data/region, claim: region}, {path: /data/cluster, clusterName: true}]}]`}
	cluster := func(name, region string) *clusterv1.ManagedCluster {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if region != "" {
			c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "region", Value: region}}
		}
		return c
	}
	h := newHub(t, append(objects(set, decidedPlacement("p", "c1", "c2", "c3")), cluster("c1", "eu"), cluster("c2", "us"), cluster("c3", ""))...)
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
	c3 := cluster("c3", "ap")
	if found := h.ofCluster(t.Context(), c3); len(found) != 1 || found[0].Name != "web" {
		t.Errorf("a cluster that changes is taken for one of %v", found)
	}
	if err := h.Delete(t.Context(), cluster("c3", "")); err != nil {
		t.Fatal(err)
	}
	if err := h.Create(t.Context(), c3); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.expectClusters(t, "c1", "c2", "c3")
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
