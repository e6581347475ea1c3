package output_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

var update = flag.Bool("update", false, "write what is printed to testdata instead of comparing with it")

var clusters = []clusterv1.ManagedCluster{
	{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster1", Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": "default"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
		Status: clusterv1.ManagedClusterStatus{
			Conditions: []metav1.Condition{{Type: "ManagedClusterConditionAvailable", Status: "True"}},
			Capacity:   corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("256Gi")},
			Version:    clusterv1.ManagedClusterVersion{Kubernetes: "v1.37.1"},
		},
	},
	{
		ObjectMeta: metav1.ObjectMeta{Name: "a-cluster-that-went-away"},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
		Status:     clusterv1.ManagedClusterStatus{Conditions: []metav1.Condition{{Type: "ManagedClusterConditionAvailable", Status: "False"}}},
	},
	{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
}

func manifest(kind, namespace, name string, applied metav1.ConditionStatus) workv1.ManifestCondition {
	return workv1.ManifestCondition{
		ResourceMeta: workv1.ManifestResourceMeta{Kind: kind, Namespace: namespace, Name: name},
		Conditions:   []metav1.Condition{{Type: "Applied", Status: applied, Message: "what is said of the " + kind}},
	}
}

var works = []workv1.ManifestWork{
	{
		ObjectMeta: metav1.ObjectMeta{Name: "nginx", Namespace: "cluster1"},
		Spec:       workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: make([]workv1.Manifest, 2)}},
		Status: workv1.ManifestWorkStatus{
			Conditions: []metav1.Condition{{Type: "Applied", Status: "False"}, {Type: "Available", Status: "True"}},
			ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{
				manifest("Namespace", "", "web", "True"), manifest("Deployment", "web", "nginx", "False"),
			}},
		},
	},
	{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "cluster2"}},
}

var started = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var status = playground.Status{
	Home: "/home/me/.capstan", Kubeconfig: "/home/me/.capstan/kubeconfig", Contexts: []string{"hub", "cluster1", "cluster2"},
	Processes: []playground.ProcessStatus{
		{Name: "hub", Running: true, PID: 42, RSSBytes: 200 << 20, StartedAt: &started, Endpoint: "https://127.0.0.1:20001", Log: "/l/hub.log"},
		{Name: "cluster1-agent", Log: "/l/cluster1-agent.log"},
	},
	Clusters: []playground.ClusterStatus{
		{Name: "cluster1", Accepted: true, Joined: "True", Available: "True"},
		{Name: "cluster2", Joined: "Unknown", Available: "Unknown"},
	},
	Works: []playground.WorkStatus{{Name: "nginx", Cluster: "cluster1", Manifests: 2, Applied: "True", Available: "False"}},
}

var sets = []clusterv1beta2.ManagedClusterSet{
	{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec: clusterv1beta2.ManagedClusterSetSpec{ManagedNamespaces: []clusterv1beta2.ManagedNamespaceConfig{{Name: "team-a"},
			{Name: "team-b"}}},
		Status: clusterv1beta2.ManagedClusterSetStatus{
			Conditions: []metav1.Condition{{Type: "ClusterSetEmpty", Status: "False", Message: "1 ManagedClusters selected"}},
		},
	},
	{
		ObjectMeta: metav1.ObjectMeta{Name: "global"},
		Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: clusterv1beta2.ManagedClusterSelector{
			SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{},
		}},
	},
}

var setContext = output.ClusterSetContext{
	Clusters: clusters,
	Bindings: []clusterv1beta2.ManagedClusterSetBinding{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "global"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "global"}},
	},
}

var placements = []clusterv1beta1.Placement{
	{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team-a"},
		Spec:       clusterv1beta1.PlacementSpec{ClusterSets: []string{"prod", "staging"}},
		Status: clusterv1beta1.PlacementStatus{NumberOfSelectedClusters: 7, Conditions: []metav1.Condition{
			{Type: "PlacementSatisfied", Status: "True", Reason: "AllDecisionsScheduled"},
			{Type: "PlacementMisconfigured", Status: "False", Reason: "Succeedconfigured"},
		}},
	},
	{
		ObjectMeta: metav1.ObjectMeta{Name: "broken", Namespace: "team-b"},
		Status: clusterv1beta1.PlacementStatus{NumberOfSelectedClusters: 1, Conditions: []metav1.Condition{
			{Type: "PlacementSatisfied", Status: "False", Reason: "NotAllDecisionsScheduled", Message: "the clusters stay"},
			{Type: "PlacementMisconfigured", Status: "True", Reason: "Misconfigured", Message: "what is wrong"},
		}},
	},
	{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "team-b"}},
}

func decision(namespace, placement, index string, clusters ...string) clusterv1beta1.PlacementDecision {
	d := clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: placement + "-decision-" + index,
		Labels: map[string]string{"cluster.open-cluster-management.io/placement": placement},
	}}
	for _, c := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: c})
	}
	return d
}

var decisions = []clusterv1beta1.PlacementDecision{
	decision("team-a", "web", "10", "c7"), decision("team-a", "web", "2", "c3", "c4", "c5", "c6"), decision("team-a", "web", "1", "c1", "c2"),
	decision("team-b", "web", "1", "of-another-namespace"), decision("team-b", "broken", "1", "c1"), decision("team-b", "new", "1"),
}

// CA-05, CA-23 to CA-26: what is printed, with colour and without.
func TestGolden(t *testing.T) {
	t.Parallel()
	none := output.Clusters(&clusterv1.ManagedClusterList{}, nil)
	tests := map[string]func(*bytes.Buffer, output.Style) error{
		"clusters-tree":    view(output.Tree, output.Clusters(nil, clusters)),
		"clusters-table":   view(output.Table, output.Clusters(nil, clusters)),
		"no-clusters":      view(output.Tree, none),
		"works-tree":       view(output.Tree, output.Works(nil, works)),
		"works-table":      view(output.Table, output.Works(nil, works)),
		"sets-tree":        view(output.Tree, output.ClusterSets(nil, sets, setContext)),
		"sets-table":       view(output.Table, output.ClusterSets(nil, sets, setContext)),
		"placements-tree":  view(output.Tree, output.Placements(nil, placements, decisions)),
		"placements-table": view(output.Table, output.Placements(nil, placements, decisions)),
		"set-yaml":         view(output.YAML, output.ClusterSets(&sets[0], nil, output.ClusterSetContext{})),
		"cluster-yaml":     view(output.YAML, output.Clusters(&clusters[0], nil)),
		"cluster-json":     view(output.JSON, output.Clusters(&clusters[0], nil)),
		"status-yaml":      view(output.YAML, output.View{Object: status}),
		"playground": func(b *bytes.Buffer, s output.Style) error {
			for _, grid := range []output.Grid{
				output.PlaygroundProcesses(status, started.Add(90*time.Minute)), output.PlaygroundClusters(status), output.PlaygroundWorks(status),
			} {
				if err := s.WriteGrid(b, grid); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for name, write := range tests {
		for suffix, style := range map[string]output.Style{"": {}, "-colour": {Colour: true}} {
			var got bytes.Buffer
			if err := write(&got, style); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if strings.HasSuffix(name, "json") || strings.HasSuffix(name, "yaml") {
				suffix = "" // programs are not to meet colour
			}
			compare(t, filepath.Join("testdata", name+suffix+".txt"), got.Bytes())
		}
	}
}

// What agents and users write does not reach the terminal as it is, and does not shift columns; colours do.
func TestTextsOfOthersAreQuoted(t *testing.T) {
	t.Parallel()
	const hostile, quoted = "x\x1b[2K\ny\u202ez", `"x\x1b[2K\ny\u202ez"`
	conditions := func(kinds ...string) []metav1.Condition {
		var all []metav1.Condition
		for _, kind := range kinds {
			all = append(all, metav1.Condition{Type: kind, Status: "False", Reason: hostile, Message: hostile})
		}
		return all
	}
	cluster := clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"},
		Status: clusterv1.ManagedClusterStatus{Version: clusterv1.ManagedClusterVersion{Kubernetes: hostile}}}
	work := workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "c1"}}
	work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{
		ResourceMeta: workv1.ManifestResourceMeta{Kind: "Secret", Name: hostile}, Conditions: conditions("Applied")}}
	placement := clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team-a"},
		Status: clusterv1beta1.PlacementStatus{Conditions: conditions("PlacementSatisfied")}}
	cells := output.View{
		Grid: func() output.Grid {
			return output.Grid{Header: []string{hostile, "b"}, Rows: [][]output.Cell{{{Text: "short", Bad: true}, output.Plain(hostile)}}}
		},
		Root: func() output.Node { return output.Node{Key: hostile, Value: output.Cell{Text: hostile, Bad: true}} },
	}
	for name, test := range map[string]struct {
		view        output.View
		table, tree string // a line of each; the table has two
	}{
		"any":      {cells, "\nshort" + strings.Repeat(" ", len(quoted)-len("short")+3) + quoted + "\n", quoted + ": " + quoted + "\n"},
		"clusters": {output.Clusters(nil, []clusterv1.ManagedCluster{cluster}), "   " + quoted + "\n", "KubernetesVersion: " + quoted + "\n"},
		"works": {output.Works(nil, []workv1.ManifestWork{work}), "web    c1",
			`"Secret x\x1b[2K\ny\u202ez": "not-applied (x\x1b[2K\ny\u202ez)"` + "\n"},
		"placements": {output.Placements(nil, []clusterv1beta1.Placement{placement}, nil), "False    " + quoted + "   -",
			`PlacementSatisfied: "False (x\x1b[2K\ny\u202ez)"` + "\n"},
	} {
		for _, style := range []output.Style{{}, {Colour: true}} {
			for format, want := range map[output.Format]string{output.Table: test.table, output.Tree: test.tree} {
				var got bytes.Buffer
				if err := style.Write(&got, format, test.view); err != nil {
					t.Fatal(err)
				}
				plain := strings.NewReplacer("\x1b[31m", "", "\x1b[2m", "", "\x1b[0m", "").Replace(got.String())
				if strings.Contains(plain, "\x1b") || !strings.Contains(plain, want) || format == output.Table && strings.Count(plain, "\n") != 2 {
					t.Errorf("%s as %s: %q, want %q in it", name, format, plain, want)
				}
				if painted := plain != got.String(); painted != style.Colour {
					t.Errorf("%s as %s is coloured: %t", name, format, painted)
				}
			}
		}
	}
}

func view(format output.Format, view output.View) func(*bytes.Buffer, output.Style) error {
	return func(b *bytes.Buffer, s output.Style) error { return s.Write(b, format, view) }
}

func compare(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (- want, + got; -update accepts it):\n%s", file, diff)
	}
}

func TestChoice(t *testing.T) {
	t.Parallel()
	choice := output.NewChoice(output.Tree, output.JSON)
	if choice.Format() != output.Tree {
		t.Errorf("default %s", choice)
	}
	if err := choice.Set("json"); err != nil || choice.Format() != output.JSON {
		t.Errorf("set to %s, error %v", choice, err)
	}
	if err := choice.Set("yaml"); err == nil || !strings.Contains(err.Error(), "tree, json") {
		t.Errorf("error %v does not say what there is", err)
	}
}

// NO_COLOR, and anything that is no terminal, turns colour off.
func TestStyleOfNoTerminal(t *testing.T) {
	t.Parallel()
	if output.StyleOf(&bytes.Buffer{}).Colour {
		t.Error("colour without a terminal")
	}
}
