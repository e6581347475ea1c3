package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
)

// asker asks a hub at its debug endpoint, as a user.
type asker struct {
	client *http.Client
	url    string
}

func newAsker(t *testing.T, s *env.Server, become func(*rest.Config) *rest.Config) asker {
	t.Helper()
	config, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	config = become(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return asker{client, config.Host + report.Path}
}

func theAdmin(config *rest.Config) *rest.Config { return config }

func user(name string) func(*rest.Config) *rest.Config {
	return func(config *rest.Config) *rest.Config {
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{fleet.GroupAuthenticated}}
		return config
	}
}

// ask returns the report, and what the hub answered if it is none.
func (a asker) ask(ctx context.Context, method, path string, body any) (*report.Report, int, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, 0, err
	}
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(content))
	if err != nil {
		return nil, 0, err
	}
	response, err := a.client.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	if content, err = io.ReadAll(response.Body); err != nil {
		return nil, 0, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, response.StatusCode, errors.New(string(content))
	}
	answer := &report.Report{}
	return answer, response.StatusCode, json.Unmarshal(content, answer)
}

// PL-23 P10: the hub says why a placement selects what it does, and what one that is not saved would select, completed as if it
// were saved.
func TestPlacementReport(t *testing.T) {
	t.Parallel()
	s := newSite(t, "why", "a", "b")
	s.add(t, "us", map[string]string{"region": "us"})
	notUS := clusterv1beta1.ClusterPredicate{RequiredClusterSelector: clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpDoesNotExist}}}}}
	spec := clusterv1beta1.PlacementSpec{
		NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{tolerant},
		Predicates: []clusterv1beta1.ClusterPredicate{notUS},
	}
	s.place(t, "one", spec)
	s.await(t, "one", "a")
	admin := newAsker(t, hub, theAdmin)
	got, _, err := admin.ask(t.Context(), http.MethodGet, "why/one", nil)
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
	got, _, err = admin.ask(t.Context(), http.MethodPost, "", unsaved(`{
		"numberOfClusters":1,"tolerations":[{"key":"cluster.open-cluster-management.io/unreachable","operator":"Exists"}],
		"prioritizerPolicy":{"mode":"Exact","configurations":[{"scoreCoordinate":{"builtIn":"Steady"}}]}}`))
	if err != nil || len(got.PrioritizeResults) != 1 || got.PrioritizeResults[0].Weight != 1 ||
		got.AggregatedScores[0].ClusterName != "why-a" {
		t.Errorf("report %+v, error %v: the weight is 1 where none is given", got, err)
	}
	_, code, err := admin.ask(t.Context(), http.MethodPost, "", unsaved(`{"scoreRateLimit":"often"}`))
	if code != http.StatusBadRequest || !strings.Contains(err.Error(), "spec.scoreRateLimit") || strings.Contains(err.Error(), "what-if") {
		t.Errorf("%d %v", code, err)
	}
	got, _, err = admin.ask(t.Context(), http.MethodPost, "",
		unsaved(`{"prioritizerPolicy":{"configurations":[{"scoreCoordinate":{"builtIn":"Nonsense"}}]}}`))
	if err != nil || !strings.Contains(got.Error, "Nonsense") || got.Funnel.Selected != 1 {
		t.Errorf("report %+v, error %v", got, err)
	}
	s.await(t, "one", "a")
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
	s := newSite(t, "whymay", "a")
	spec := clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{tolerant}}
	p := s.place(t, "all", spec)
	s.add(t, "elsewhere", map[string]string{fleet.LabelClusterSet: "whymay-elsewhere"})
	for verb, who := range map[string]string{"get": "whymay-reader", "create": "whymay-author"} {
		name := who
		create(t, s.c,
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{clusterv1beta1.GroupVersion.Group}, Resources: []string{"placements"}, Verbs: []string{verb},
			}}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who}}})
	}
	reader, author := newAsker(t, hub, user("whymay-reader")), newAsker(t, hub, user("whymay-author"))
	anonymous := newAsker(t, hub, rest.AnonymousClientConfig)
	unsaved := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "new"}, Spec: spec}

	// A right that was given a moment ago takes some seconds to count.
	env.Eventually(t, func(ctx context.Context) error {
		got, code, err := reader.ask(ctx, http.MethodGet, s.name+"/"+p.Name, nil)
		if err != nil {
			return fmt.Errorf("the reader: %d %w", code, err)
		}
		if reasonFor(got, "whymay-a") == nil || len(got.Clusters) != 1 {
			return fmt.Errorf("the reader sees the clusters %+v", got.Clusters)
		}
		if _, code, err = author.ask(ctx, http.MethodPost, "", unsaved); err != nil {
			return fmt.Errorf("the author: %d %w", code, err)
		}
		return nil
	})
	other := unsaved.DeepCopy()
	other.Namespace = "default"
	for name, test := range map[string]struct {
		as           asker
		method, path string
		body         any
		code         int
	}{
		"the reader creates":     {reader, http.MethodPost, "", unsaved, http.StatusForbidden},
		"the author reads":       {author, http.MethodGet, s.name + "/all", nil, http.StatusForbidden},
		"in another namespace":   {reader, http.MethodGet, "default/all", nil, http.StatusForbidden},
		"for another namespace":  {author, http.MethodPost, "", other, http.StatusForbidden},
		"without a credential":   {anonymous, http.MethodGet, s.name + "/all", nil, http.StatusUnauthorized},
		"the same, to create":    {anonymous, http.MethodPost, "", unsaved, http.StatusUnauthorized},
		"what is not there":      {reader, http.MethodGet, s.name + "/gone", nil, http.StatusNotFound},
		"in no way that is here": {reader, http.MethodPut, s.name + "/all", unsaved, http.StatusMethodNotAllowed},
	} {
		if _, code, err := test.as.ask(t.Context(), test.method, test.path, test.body); code != test.code {
			t.Errorf("%s: %d %v, want %d", name, code, err, test.code)
		}
	}
}

// The placements of the documentation make sense.
func TestDocumentedPlacements(t *testing.T) {
	t.Parallel()
	s := newSite(t, "documented", "a")
	content, err := os.ReadFile("../../docs/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(content, -1)
	if len(blocks) == 0 {
		t.Error("there are none")
	}
	admin := newAsker(t, hub, theAdmin)
	for _, block := range blocks {
		var placement map[string]any
		if err := yaml.Unmarshal(block[1], &placement); err != nil {
			t.Fatalf("%v in:\n%s", err, block[1])
		}
		placement["metadata"] = map[string]any{"namespace": s.name}
		if got, _, err := admin.ask(t.Context(), http.MethodPost, "", placement); err != nil || got.Error != "" {
			t.Errorf("report %+v, error %v, of:\n%s", got, err, block[1])
		}
	}
}

// PL-23: a hub on which nobody has placed anything yet knows the fleet nevertheless, and one that places nothing says so.
func TestPlacementReportOfAQuietHub(t *testing.T) {
	t.Parallel()
	quiet := env.StartHub(t, "")
	s := newSiteOn(t, quiet, "quiet", "a", "b")
	got, _, err := newAsker(t, quiet, theAdmin).ask(t.Context(), http.MethodPost, "", &clusterv1beta1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name},
		Spec:       clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{tolerant}},
	})
	if err != nil || got.Funnel.Selected != 1 || got.Funnel.InClusterSets != 2 {
		t.Errorf("report %+v, error %v", got, err)
	}
	bare := env.StartHub(t, "registration")
	if _, code, _ := newAsker(t, bare, theAdmin).ask(t.Context(), http.MethodGet, "default/one", nil); code != http.StatusNotFound {
		t.Errorf("a hub without placement answers %d", code)
	}
}
