package placement

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// PL-14 PL-16 PL-22: what a user does to decisions is put right on a real API server, too, and the status says when the
// scores were written.
func TestMeddledDecisions(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "place-meddled", "a", "b")
	p := s.Place(t, "all", clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "all", "a", "b")
	decision := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "all-decision-1"}}
	framework.MergePatch(t, s.C, decision, `{"metadata":{"labels":{"cluster.open-cluster-management.io/placement":null}}}`)
	s.Await(t, "all", "a", "b")
	framework.MergePatch(t, s.C, decision, `{"metadata":{"labels":{"cluster.open-cluster-management.io/placement":"ghost"},"ownerReferences":null}}`)
	s.Await(t, "all", "a", "b") // with one that has another name, as this one is of ghost

	theirs := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "theirs",
		Labels: map[string]string{fleet.LabelPlacement: "all"}}}
	framework.Create(t, s.C, theirs)
	theirs.Status.Decisions = []clusterv1beta1.ClusterDecision{{ClusterName: s.Name + "-a"}}
	if err := s.C.Status().Update(t.Context(), theirs); client.IgnoreNotFound(err) != nil { // it may be gone by then
		t.Fatal(err)
	}
	framework.AwaitGone(t, s.C, theirs)
	s.Await(t, "all", "a", "b")
	if err := s.C.Delete(t.Context(), decision); err != nil { // of ghost
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, client.ObjectKeyFromObject(decision), decision); err != nil {
			return err
		}
		if err := s.C.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		i := slices.IndexFunc(decision.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Subresource == "status" })
		if i < 0 || p.Status.LastScoreUpdateTime == nil || !p.Status.LastScoreUpdateTime.Equal(decision.ManagedFields[i].Time) {
			return fmt.Errorf("the status says that scores were updated at %s; of %+v", p.Status.LastScoreUpdateTime, decision.ManagedFields)
		}
		if names := p.Status.DecisionGroups[0].Decisions; !slices.Equal(names, []string{"all-decision-1"}) {
			return fmt.Errorf("the name that is free again is not in use, but %v", names)
		}
		return nil
	})
	s.Await(t, "all", "a", "b")
}

// PL-24: what scheduling a placement took is at the metrics endpoint of the hub.
func TestPlacementMetrics(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "place-metrics", "a")
	s.Place(t, "one", clusterv1beta1.PlacementSpec{
		Tolerations: []clusterv1beta1.Toleration{framework.Tolerant},
		Predicates: []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
			CelSelector: clusterv1beta1.ClusterCelSelector{CelExpressions: []string{`managedCluster.metadata.name == "place-metrics-a"`}}}}},
	})
	s.Await(t, "one", "a")
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		counts, err := observed(ctx, httpClient, config.Host+"/metrics")
		if err != nil {
			return err
		}
		for _, name := range []string{
			"scheduling_scheduling_duration_seconds",
			"scheduling_bind_duration_seconds", // noted after the decisions are there
			"scheduling_plugin_duration_seconds Filter",
			"scheduling_plugin_duration_seconds Prioritizer",
			"scheduling_cel_runtime_duration_seconds",
		} {
			if counts[name] == 0 {
				return fmt.Errorf("/metrics has nothing observed of %s", name)
			}
		}
		return nil
	})
}

// observed counts what there is in each histogram at an endpoint, by its name and the type of plugin.
func observed(ctx context.Context, c *http.Client, url string) (map[string]uint64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, err
	}
	counts := map[string]uint64{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			key := name
			for _, label := range metric.GetLabel() {
				if label.GetName() == "plugin_type" {
					key += " " + label.GetValue()
				}
			}
			counts[key] += metric.GetHistogram().GetSampleCount()
		}
	}
	return counts, nil
}

// P7: with ties broken by hash, placements that select one of several equal clusters do not all select the same.
func TestTieBreakByHash(t *testing.T) {
	t.Parallel()
	s := framework.NewSiteOn(t, env.StartHub(t, "", "--placement-tie-break", "Hash"), "ties", "a", "b", "c")
	s.Place(t, "all", clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "all", "a", "b", "c") // none begins before all of them are there
	chosen := map[string]bool{}
	for i := range 8 {
		name := fmt.Sprint("one-", i)
		s.Place(t, name, framework.SteadyOne(framework.Tolerant))
		env.Eventually(t, func(ctx context.Context) error {
			ends, err := s.Selected(ctx, name)
			if err == nil && len(ends) != 1 {
				err = fmt.Errorf("placement %s selected %v", name, ends)
			}
			if err == nil {
				chosen[ends[0]] = true
			}
			return err
		})
	}
	if len(chosen) < 2 {
		t.Errorf("all select %v", chosen)
	}
}
