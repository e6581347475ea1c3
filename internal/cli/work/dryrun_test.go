package work_test

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// putAvailable gives the hub available clusters.
func putAvailable(t *testing.T, h clitest.Hub, names ...string) {
	t.Helper()
	for _, name := range names {
		h.Put(t, clitest.ClustersPath+"/"+name, clitest.AcceptedCluster(name, "ManagedClusterConditionAvailable"))
	}
}

// worksOf is where the hub has the works of a cluster.
func worksOf(cluster string) string {
	return strings.Replace(clitest.WorksPath, "cluster1", cluster, 1)
}

// reported has an agent change the status of a work.
func reported(t *testing.T, report func(*workv1.ManifestWork)) func(*unstructured.Unstructured) {
	t.Helper()
	return func(object *unstructured.Unstructured) {
		work := &workv1.ManifestWork{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, work); err != nil {
			t.Error(err)
		}
		work.Generation++
		report(work)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(work)
		if err != nil {
			t.Error(err)
		}
		object.Object = content
	}
}

// tried has the agent of a cluster say of each manifest what would become of it, once it has said that it tries works.
func tried(t *testing.T, h clitest.Hub, cluster string, reasons ...string) {
	t.Helper()
	done := func(work *workv1.ManifestWork, reason, message string) {
		work.Status.Conditions = []metav1.Condition{{Type: "DryRun", Reason: reason, Message: message, ObservedGeneration: work.Generation}}
	}
	h.OnCreate(worksOf(cluster), reported(t, func(work *workv1.ManifestWork) {
		if work.Annotations["capstan.io/dry-run"] != "server" || work.Annotations["capstan.io/dry-run-of"] != "web" || work.Name == "web" {
			t.Errorf("tried as %s with %v", work.Name, work.Annotations)
		}
		if len(work.Spec.Workload.Manifests) != 1 || !strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), `"NoSuchKind"`) {
			t.Errorf("before the agent has answered, it has to try %v", work.Spec.Workload.Manifests)
		}
		done(work, "DryRunFailed", "1 of 1 manifests would fail")
	}))
	h.OnReplace(worksOf(cluster), reported(t, func(work *workv1.ManifestWork) {
		done(work, "DryRunComplete", "all said")
		for i, reason := range reasons {
			work.Status.ResourceStatus.Manifests = append(work.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
				ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Kind: "ConfigMap", Namespace: "default", Name: "settings"},
				Conditions: []metav1.Condition{{Type: "DryRun", Status: "True", Reason: reason,
					Message: `data.key: "a" -> "b"; data.other: (none) -> "c"`}},
			})
		}
	}))
}

// applies has the agent of a cluster apply what it finds, as one that knows of no dry runs does.
func applies(t *testing.T, h clitest.Hub, cluster string) {
	t.Helper()
	h.OnCreate(worksOf(cluster), reported(t, func(work *workv1.ManifestWork) {
		work.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: "False", Reason: "AppliedManifestWorkFailed",
			ObservedGeneration: work.Generation}}
	}))
}

// CA-31, gap W12: the clusters say what would change, and are as they were.
func TestCreateWorkServerDryRun(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putAvailable(t, h, "cluster1", "cluster2")
	tried(t, h, "cluster1", "WouldCreate")
	tried(t, h, "cluster2", "WouldChange")
	create := []string{"create", "work", "web", "-f", "-", "--clusters", "cluster1,cluster2", "--dry-run=server"}
	got := h.Run(t, clitest.ConfigMap, create...)
	got.Succeeds(t, "Clusters: 2\n├── cluster1: 1 would be created\n│   └── ConfigMap default/settings: would be created\n"+
		"└── cluster2: 1 would change\n    └── ConfigMap default/settings: would change\n"+
		"        ├── data.key: \"a\" -> \"b\"\n        └── data.other: (none) -> \"c\"\n")
	if !strings.Contains(got.ErrOut, "running in dry-run mode") {
		t.Errorf("nothing says that nothing was done: %s", got.ErrOut)
	}
	if deleted := h.Requests("DELETE"); len(deleted) != 2 {
		t.Errorf("deleted %+v", deleted)
	}
	for _, changed := range h.Requests("PUT") {
		if !strings.Contains(changed.Path, "/web-dry-run-") {
			t.Errorf("changed %+v", changed)
		}
	}
	tried(t, h, "cluster2", "WouldFail")
	h.Run(t, clitest.ConfigMap, create...).Fails(t, "cluster cluster2 would not take 1 of the manifests of work web")
}

// Gap W12: the exit code is that of kubectl diff, and what a work drops is a difference, too.
func TestDiffWork(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putAvailable(t, h, "cluster1")
	tried(t, h, "cluster1", "WouldNotChange")
	diff := []string{"diff", "work", "web", "-f", "-", "--clusters", "cluster1"}
	h.Run(t, clitest.ConfigMap, diff...).Succeeds(t, "cluster1: 1 would not change\n")

	h.Put(t, clitest.WorksPath+"/web", &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster1"},
		Spec: workv1.ManifestWorkSpec{
			Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{
				{RawExtension: runtime.RawExtension{
					Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"dropped"}}`)}},
			}},
			ManifestConfigs: []workv1.ManifestConfigOption{{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: "*"}}},
		},
	})
	got := h.Run(t, clitest.ConfigMap, diff...)
	if got.Code != 1 || got.ErrOut != "" || !strings.Contains(got.Out, "ConfigMap default/dropped: would be deleted") {
		t.Errorf("%+v", got)
	}
	if sent := h.Requests("PUT"); !strings.Contains(sent[len(sent)-1].Body, `"manifestConfigs":[{`) {
		t.Errorf("tried without the rest of the work: %s", sent[len(sent)-1].Body)
	}
	if table := h.Run(t, clitest.ConfigMap, append(diff, "-o", "table")...); !strings.Contains(table.Out,
		"cluster1   web    ConfigMap default/dropped    would be deleted") {
		t.Errorf("as a table: %+v", table)
	}
	if asJSON := h.Run(t, clitest.ConfigMap, append(diff, "-o", "json")...); !strings.Contains(asJSON.Out, `"result": "WouldDelete"`) {
		t.Errorf("as JSON: %+v", asJSON)
	}

	putAvailable(t, h, "foreign", "closed", "slow")
	applies(t, h, "foreign")
	h.Put(t, clitest.ClustersPath+"/silent", clitest.AcceptedCluster("silent"))
	h.Handle("POST "+worksOf("closed"), fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not create works"))
	for says, args := range map[string][]string{
		"-f is missing":            {"diff", "work", "web", "--clusters", "cluster1"},
		"unknown flag":             {"diff", "work", "web", "--bogus"},
		`"gone" not found`:         {"diff", "work", "web", "-f", "-", "--cluster", "gone"},
		"is none of tree, table,":  {"diff", "work", "web", "-o", "xml"},
		"0 names given":            {"diff", "work"},
		"is not available":         {"diff", "work", "web", "-f", "-", "--cluster", "silent"},
		"is not one of Capstan":    {"diff", "work", "web", "-f", "-", "--cluster", "foreign"},
		"you may not create works": {"diff", "work", "web", "-f", "-", "--cluster", "closed"},
	} {
		if got := h.Run(t, clitest.ConfigMap, args...); got.Code != 2 || !strings.Contains(got.ErrOut, says) {
			t.Errorf("%v: %+v, want exit code 2 and %q", args, got, says)
		}
	}
	slow := h.TimesOut(t, worksOf("slow"), clitest.ConfigMap, "diff", "work", "web", "-f", "-", "--cluster", "slow", "--timeout", "1")
	if slow.Code != 2 || !strings.Contains(slow.ErrOut, "see whether the agent of ") {
		t.Errorf("an agent that does not answer: %+v", slow)
	}
	for _, request := range h.Requests("PUT") {
		if regexp.MustCompile("/(foreign|slow)/").MatchString(request.Path) {
			t.Errorf("an agent that may apply it got the manifests: %+v", request)
		}
	}
	for _, request := range h.Requests("DELETE") {
		if strings.Contains(request.Path, "/closed/") {
			t.Errorf("it deleted a work that the hub refused: %+v", request)
		}
	}
	if works := h.Run(t, "", "get", "works"); strings.Contains(works.Out, "dry-run") {
		t.Errorf("left behind: %s", works.Out)
	}
}

// A trial fails for clusters that are left out, as the delivery does; a comparison with no cluster at all is none.
func TestDryRunOfLeftOutClusters(t *testing.T) {
	t.Parallel()
	unbound := clitest.AcceptedCluster("cluster2", "HubAcceptedManagedCluster")
	denied := clitest.Cluster("cluster2", nil, "HubAcceptedManagedCluster")
	const leftOut, none = "A hub with --trust-placement-decisions", "placement team-a/web selects no clusters that count"
	for name, test := range map[string]struct {
		selected []string
		second   *clusterv1.ManagedCluster // nil if it is gone
		dryRun   int
		diff     int
		says     string // in the error of either that fails
	}{
		"one is in no bound set":   {[]string{"cluster1", "cluster2"}, unbound, 1, 2, leftOut},
		"one is denied":            {[]string{"cluster1", "cluster2"}, denied, 1, 2, leftOut},
		"one is gone":              {[]string{"cluster1", "cluster2"}, nil, 0, 0, ""},
		"the only one is denied":   {[]string{"cluster2"}, denied, 1, 2, "1 cluster of its decisions passed over: cluster2 (it is denied)"},
		"the only one is gone":     {[]string{"cluster2"}, nil, 0, 2, none},
		"the placement has none":   {nil, nil, 0, 0, ""},
		"none of them is left out": {[]string{"cluster1"}, nil, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			putAvailable(t, h, "cluster1", "cluster2")
			tried(t, h, "cluster1", "WouldNotChange")
			h.PutPlacement(t, "team-a", "web", test.selected...)
			h.Remove(t, clitest.ClustersPath+"/cluster2")
			if test.second != nil {
				h.Put(t, clitest.ClustersPath+"/cluster2", test.second)
			}
			if test.second == unbound {
				bindOnlyMembers(t, h, "cluster1")
			}
			for command, want := range map[string]int{"create --overwrite --dry-run=server": test.dryRun, "diff": test.diff} {
				words := strings.Fields(command)
				args := append([]string{words[0], "work", "web", "-f", "-", "--placement", "team-a/web"}, words[1:]...)
				got := h.Run(t, clitest.ConfigMap, args...)
				if got.Code != want || want != 0 && !strings.Contains(got.ErrOut, test.says) {
					t.Errorf("%s: %+v, want exit code %d and %q", command, got, want, test.says)
				}
			}
		})
	}
}

// bindOnlyMembers makes a cluster the only member of the set that is bound in team-a.
func bindOnlyMembers(t *testing.T, h clitest.Hub, name string) {
	t.Helper()
	h.PutSet(t, "global") // of clusters with its label from now on
	var member clusterv1.ManagedCluster
	h.Get(t, clitest.ClustersPath+"/"+name, &member)
	member.Labels = map[string]string{"cluster.open-cluster-management.io/clusterset": "global"}
	h.Put(t, clitest.ClustersPath+"/"+name, &member)
}

// An interrupted trial leaves nothing, whenever that is.
func TestDiffWorkInterrupted(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(t *testing.T, h clitest.Hub, cancel func()){
		"while the agent tries": func(t *testing.T, h clitest.Hub, cancel func()) {
			t.Helper()
			go func() {
				_ = h.AwaitWatch(t.Context(), clitest.WorksPath)
				cancel()
			}()
		},
		"before the hub says that the work is created": func(t *testing.T, h clitest.Hub, cancel func()) {
			t.Helper()
			h.Handle("POST "+clitest.WorksPath, func(_ http.ResponseWriter, r *http.Request) {
				work := &workv1.ManifestWork{}
				if err := json.NewDecoder(r.Body).Decode(work); err != nil {
					t.Error(err)
				}
				h.PutLocked(t, clitest.WorksPath+"/"+work.Name, work)
				cancel()
				<-r.Context().Done() // the command has gone
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			putAvailable(t, h, "cluster1")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			interrupt(t, h, cancel)
			got := clitest.Run(ctx, clitest.ConfigMap, "--kubeconfig", h.File, "diff", "work", "web", "-f", "-", "--cluster", "cluster1")
			if got.Code != 130 {
				t.Errorf("%+v", got)
			}
			if left := h.Run(t, "", "get", "works"); !strings.Contains(left.Out, "ManifestWorks: none") {
				t.Errorf("left behind: %s", left.Out)
			}
			if len(h.Requests("POST")) != 1 {
				t.Errorf("it was interrupted before it created the work: %+v", got)
			}
		})
	}
}

// CA-34
func TestDeleteWork(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	put := func(cluster string, labels map[string]string) {
		h.Put(t, strings.Replace(clitest.WorksPath, "cluster1", cluster, 1)+"/web",
			&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: cluster, Labels: labels}})
	}
	put("cluster1", nil)
	put("cluster2", nil)
	remove := []string{"delete", "work", "web", "--clusters", "cluster1,cluster2,idle"}
	h.Run(t, "", "delete", "work", "web", "--clusters", "cluster1,gone").Fails(t, `"gone" not found`, "capstan get clusters")
	h.Run(t, "", "delete", "work", "wbe", "--clusters", "cluster1,gone").Fails(t, `"gone" not found`)
	h.Run(t, "", "delete", "work", "web").Fails(t, "either --cluster or --clusters needs to be set")
	h.Run(t, "", append(remove, "--dry-run")...).Succeeds(t, "would delete work web in cluster cluster1\n",
		"work web in cluster idle not found or is already deleted\n")
	if deleted := h.Requests("DELETE"); len(deleted) > 0 {
		t.Fatalf("it deleted %+v", deleted)
	}
	h.Run(t, "", remove...).Succeeds(t,
		"work web in cluster idle not found or is already deleted\nwork web in cluster cluster1 is deleted\nwork web in cluster cluster2 is deleted\n")
	h.Run(t, "", remove...).Succeeds(t, "work web in cluster cluster1 not found or is already deleted\n") // as after a time-out
	put("cluster1", nil)
	h.End("DELETE " + clitest.WorksPath + "/web")
	h.Run(t, "", remove...).Succeeds(t, "work web in cluster cluster1 is deleted\n")

	put("cluster1", map[string]string{"work.open-cluster-management.io/manifestworkreplicaset": "default.web"})
	h.Put(t, "/apis/work.open-cluster-management.io/v1alpha1/namespaces/default/manifestworkreplicasets/web",
		&workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}})
	refused := h.Run(t, "", "delete", "work", "web", "--cluster", "cluster1")
	refused.Fails(t, "belongs to ManifestWorkReplicaSet default.web")
	h.DeleteAs(t, refused, "-n default delete manifestworkreplicaset web") // and its works go with it
	put("cluster1", map[string]string{"work.open-cluster-management.io/manifestworkreplicaset": strings.Repeat("x", 50) + ".name-cut-off"})
	h.Run(t, "", "delete", "work", "web", "--cluster", "cluster1").Fails(t, strings.Repeat("x", 50)+" delete manifestworkreplicaset NAME\"")

	put("cluster1", nil) // its agent is gone: the finalizer stays
	h.Handle("DELETE "+clitest.WorksPath+"/web", fakehub.JSON(`{}`))
	h.TimesOut(t, clitest.WorksPath, "", "delete", "work", "web", "--cluster", "cluster1", "--timeout", "1").Fails(t, "not done after 1s", "--force")
	released := make(chan struct{})
	h.Handle("PATCH "+clitest.WorksPath+"/web", func(w http.ResponseWriter, r *http.Request) {
		close(released)
		fakehub.JSON(`{}`)(w, r)
	})
	go func() {
		<-released
		h.Remove(t, clitest.WorksPath+"/web")
	}()
	h.Run(t, "", "delete", "work", "web", "--cluster", "cluster1", "--force").Succeeds(t, "work web in cluster cluster1 is deleted")
	if sent := h.Requests("PATCH"); sent[0].Body != `{"metadata":{"finalizers":null}}` {
		t.Errorf("it sent %+v", sent)
	}
}

// A work that stays takes no time from those of other clusters.
func TestDeleteWorksAtTheSameTime(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	second := strings.Replace(clitest.WorksPath, "cluster1", "cluster2", 1)
	h.Put(t, clitest.WorksPath+"/web",
		&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster1", Finalizers: []string{"of.example.com/agent"}}})
	h.Put(t, second+"/web", &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster2"}})
	got := clitest.TimesOutAfter(t, func(ctx context.Context) {
		_ = h.AwaitWatch(ctx, clitest.WorksPath)
		_ = h.AwaitWatchEnd(ctx, second)
	}, "", "--kubeconfig", h.File, "delete", "work", "web", "--clusters", "cluster1,cluster2", "--timeout", "1")
	got.Fails(t, "web in cluster cluster1", "not done after 1s", "--force")
	if got.Out != "work web in cluster cluster2 is deleted\n" {
		t.Errorf("it printed %q", got.Out)
	}
	if strings.Contains(got.ErrOut, "cluster2") {
		t.Errorf("the error names cluster2: %s", got.ErrOut)
	}
}
