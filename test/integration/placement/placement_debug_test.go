package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// PL-23 P10: the hub says why a placement selects what it does, and what one that is not saved would select, completed as if it
// were saved.
func TestPlacementReport(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "why", "a", "b")
	s.Add(t, "us", map[string]string{"region": "us"})
	notUS := clusterv1beta1.ClusterPredicate{RequiredClusterSelector: clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpDoesNotExist}}}}}
	spec := clusterv1beta1.PlacementSpec{
		NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{framework.Tolerant},
		Predicates: []clusterv1beta1.ClusterPredicate{notUS},
	}
	s.Place(t, "one", spec)
	s.Await(t, "one", "a")
	admin := framework.NewAsker(t, framework.Hub, framework.AsItself)
	got, _, err := admin.Ask(t.Context(), http.MethodGet, "why/one", nil)
	if err != nil {
		t.Fatal(err)
	}
	both := []string{"why-a", "why-b"}
	if len(got.FilteredPipelineResults) != 2 || got.FilteredPipelineResults[1].Name != "Predicate,TaintToleration" ||
		!slices.Equal(got.FilteredPipelineResults[0].FilteredClusters, both) {
		t.Errorf("filters %+v", got.FilteredPipelineResults)
	}
	if len(got.PrioritizeResults) != 2 || len(got.AggregatedScores) != 2 || got.AggregatedScores[0].ClusterName != "why-a" ||
		got.Placement.Name != "one" || got.Error != "" {
		t.Errorf("report %+v", got)
	}
	if f := got.Funnel; f.InClusterSets != 3 || f.Matched != 2 || f.Tolerated != 2 || f.Selected != 1 || f.Fleet < 3 {
		t.Errorf("funnel %+v", f)
	}
	if why := reasonFor(got, "why-us"); why == nil || why.Selected || !strings.Contains(why.Reason, "its labels do not match") {
		t.Errorf("why-us: %+v", why)
	}

	// Steady keeps what the saved one of this name has. Without it, and with a weight that is left out, Balance decides.
	unsaved := func(spec string) map[string]any {
		return map[string]any{"metadata": map[string]any{"namespace": "why", "name": "one"}, "spec": json.RawMessage(spec)}
	}
	got, _, err = admin.Ask(t.Context(), http.MethodPost, "", unsaved(`{
		"numberOfClusters":1,"tolerations":[{"key":"cluster.open-cluster-management.io/unreachable","operator":"Exists"}],
		"prioritizerPolicy":{"mode":"Exact","configurations":[{"scoreCoordinate":{"builtIn":"Steady"}}]}}`))
	if err != nil || len(got.PrioritizeResults) != 1 || got.PrioritizeResults[0].Weight != 1 ||
		got.AggregatedScores[0].ClusterName != "why-a" {
		t.Errorf("report %+v, error %v: the weight is 1 where none is given", got, err)
	}
	_, code, err := admin.Ask(t.Context(), http.MethodPost, "", unsaved(`{"scoreRateLimit":"often"}`))
	if code != http.StatusBadRequest || !strings.Contains(err.Error(), "spec.scoreRateLimit") || strings.Contains(err.Error(), "what-if") {
		t.Errorf("%d %v", code, err)
	}
	got, _, err = admin.Ask(t.Context(), http.MethodPost, "",
		unsaved(`{"prioritizerPolicy":{"configurations":[{"scoreCoordinate":{"builtIn":"Nonsense"}}]}}`))
	if err != nil || !strings.Contains(got.Error, "Nonsense") || got.Funnel.Selected != 1 {
		t.Errorf("report %+v, error %v", got, err)
	}
	s.Await(t, "one", "a")
}

func reasonFor(r *report.Report, cluster string) *report.ClusterReason {
	for i := range r.Clusters {
		if r.Clusters[i].ClusterName == cluster {
			return &r.Clusters[i]
		}
	}
	return nil
}

// PL-23: who may read placements of a namespace, or create them, is told about them, and of no clusters that they cannot
// select. Nobody else is.
func TestPlacementReportRights(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "whymay", "a")
	spec := clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}}
	p := s.Place(t, "all", spec)
	s.Add(t, "elsewhere", map[string]string{fleet.LabelClusterSet: "whymay-elsewhere"})
	for verb, who := range map[string]string{"get": "whymay-reader", "create": "whymay-author"} {
		name := who
		framework.Create(t, s.C,
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}, Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{clusterv1beta1.GroupVersion.Group}, Resources: []string{"placements"}, Verbs: []string{verb},
			}}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who}}})
	}
	reader := framework.NewAsker(t, framework.Hub, framework.AsUser("whymay-reader"))
	author := framework.NewAsker(t, framework.Hub, framework.AsUser("whymay-author"))
	anonymous := framework.NewAsker(t, framework.Hub, rest.AnonymousClientConfig)
	unsaved := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "new"}, Spec: spec}

	// A right that was given a moment ago takes some seconds to count.
	env.Eventually(t, func(ctx context.Context) error {
		got, code, err := reader.Ask(ctx, http.MethodGet, s.Name+"/"+p.Name, nil)
		if err != nil {
			return fmt.Errorf("the reader: %d %w", code, err)
		}
		if reasonFor(got, "whymay-a") == nil || len(got.Clusters) != 1 {
			return fmt.Errorf("the reader sees the clusters %+v", got.Clusters)
		}
		if _, code, err = author.Ask(ctx, http.MethodPost, "", unsaved); err != nil {
			return fmt.Errorf("the author: %d %w", code, err)
		}
		return nil
	})
	other := unsaved.DeepCopy()
	other.Namespace = "default"
	for name, test := range map[string]struct {
		as           framework.Asker
		method, path string
		body         any
		code         int
	}{
		"the reader creates":     {reader, http.MethodPost, "", unsaved, http.StatusForbidden},
		"the author reads":       {author, http.MethodGet, s.Name + "/all", nil, http.StatusForbidden},
		"in another namespace":   {reader, http.MethodGet, "default/all", nil, http.StatusForbidden},
		"for another namespace":  {author, http.MethodPost, "", other, http.StatusForbidden},
		"without a credential":   {anonymous, http.MethodGet, s.Name + "/all", nil, http.StatusUnauthorized},
		"the same, to create":    {anonymous, http.MethodPost, "", unsaved, http.StatusUnauthorized},
		"what is not there":      {reader, http.MethodGet, s.Name + "/gone", nil, http.StatusNotFound},
		"in no way that is here": {reader, http.MethodPut, s.Name + "/all", unsaved, http.StatusMethodNotAllowed},
	} {
		if _, code, err := test.as.Ask(t.Context(), test.method, test.path, test.body); code != test.code {
			t.Errorf("%s: %d %v, want %d", name, code, err, test.code)
		}
	}
}

// The placements of the documentation make sense.
func TestDocumentedPlacements(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "documented", "a")
	content, err := os.ReadFile("../../../docs/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(content, -1)
	if len(blocks) == 0 {
		t.Error("there are none")
	}
	admin := framework.NewAsker(t, framework.Hub, framework.AsItself)
	for _, block := range blocks {
		var placement map[string]any
		if err := yaml.Unmarshal(block[1], &placement); err != nil {
			t.Fatalf("%v in:\n%s", err, block[1])
		}
		placement["metadata"] = map[string]any{"namespace": s.Name}
		if got, _, err := admin.Ask(t.Context(), http.MethodPost, "", placement); err != nil || got.Error != "" {
			t.Errorf("report %+v, error %v, of:\n%s", got, err, block[1])
		}
	}
}

// PL-23: a hub on which nobody has placed anything yet knows the fleet nevertheless, and one that places nothing says so.
func TestPlacementReportOfAQuietHub(t *testing.T) {
	t.Parallel()
	quiet := env.StartHub(t, "")
	s := framework.NewSiteOn(t, quiet, "quiet", "a", "b")
	got, _, err := framework.NewAsker(t, quiet, framework.AsItself).Ask(t.Context(), http.MethodPost, "", &clusterv1beta1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Name},
		Spec: clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1),
			Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}},
	})
	if err != nil || got.Funnel.Selected != 1 || got.Funnel.InClusterSets != 2 {
		t.Errorf("report %+v, error %v", got, err)
	}
	bare := env.StartHub(t, "registration")
	if _, code, _ := framework.NewAsker(t, bare, framework.AsItself).Ask(t.Context(), http.MethodGet, "default/one",
		nil); code != http.StatusNotFound {
		t.Errorf("a hub without placement answers %d", code)
	}
}
