package work_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// putAgent is an available cluster with an agent of a kind.
func putAgent(t *testing.T, h clitest.Hub, name, manager string) {
	t.Helper()
	c := clitest.AcceptedCluster(name, "ManagedClusterConditionAvailable")
	c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Subresource: "status"}}
	h.Put(t, clitest.ClustersPath+"/"+name, c)
}

// tried has the agent of a cluster say of each manifest what would become of it.
func tried(t *testing.T, h clitest.Hub, cluster string, reasons ...string) {
	t.Helper()
	h.OnCreate(strings.Replace(clitest.WorksPath, "cluster1", cluster, 1), func(created *unstructured.Unstructured) {
		work := &workv1.ManifestWork{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, work); err != nil {
			t.Error(err)
		}
		if work.Annotations["capstan.io/dry-run"] != "server" || work.Annotations["capstan.io/dry-run-of"] != "web" || work.Name == "web" {
			t.Errorf("tried as %s with %v", work.Name, work.Annotations)
		}
		work.Status.Conditions = []metav1.Condition{{Type: "DryRun", Status: "True", Reason: "DryRunComplete", Message: "all said"}}
		for i, reason := range reasons {
			work.Status.ResourceStatus.Manifests = append(work.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
				ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Kind: "ConfigMap", Namespace: "default", Name: "settings"},
				Conditions: []metav1.Condition{{Type: "DryRun", Status: "True", Reason: reason,
					Message: `data.key: "a" -> "b"; data.other: (none) -> "c"`}},
			})
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(work)
		if err != nil {
			t.Error(err)
		}
		created.Object = content
	})
}

// CA-31, gap W12: the clusters say what would change, and are as they were.
func TestCreateWorkServerDryRun(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putAgent(t, h, "cluster1", "capstan-agent")
	putAgent(t, h, "cluster2", "capstan-agent")
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
	if deleted := h.Requests("DELETE"); len(deleted) != 2 || len(h.Requests("PUT")) != 0 {
		t.Errorf("deleted %+v, changed %+v", deleted, h.Requests("PUT"))
	}
	tried(t, h, "cluster2", "WouldFail")
	h.Run(t, clitest.ConfigMap, create...).Fails(t, "cluster cluster2 would not take 1 of the manifests of work web")
}

// Gap W12: the exit code is that of kubectl diff, and what a work drops is a difference, too.
func TestDiffWork(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putAgent(t, h, "cluster1", "capstan-agent")
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
	if sent := h.Requests("POST"); !strings.Contains(sent[len(sent)-1].Body, `"manifestConfigs":[{`) {
		t.Errorf("tried without the rest of the work: %s", sent[len(sent)-1].Body)
	}
	if table := h.Run(t, clitest.ConfigMap, append(diff, "-o", "table")...); !strings.Contains(table.Out,
		"cluster1   web    ConfigMap default/dropped    would be deleted") {
		t.Errorf("as a table: %+v", table)
	}
	if asJSON := h.Run(t, clitest.ConfigMap, append(diff, "-o", "json")...); !strings.Contains(asJSON.Out, `"result": "WouldDelete"`) {
		t.Errorf("as JSON: %+v", asJSON)
	}

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
		h.Put(t, clitest.ClustersPath+"/silent", clitest.AcceptedCluster("silent"))
		putAgent(t, h, "foreign", "work-agent")
		putAgent(t, h, "closed", "capstan-agent")
		putAgent(t, h, "slow", "capstan-agent")
		h.Handle("POST "+strings.Replace(clitest.WorksPath, "cluster1", "closed", 1), fakehub.Refuse(http.StatusForbidden,
			metav1.StatusReasonForbidden, "you may not create works"))
		if got := h.Run(t, clitest.ConfigMap, args...); got.Code != 2 || !strings.Contains(got.ErrOut, says) {
			t.Errorf("%v: %+v, want exit code 2 and %q", args, got, says)
		}
	}
	slow := h.TimesOut(t, strings.Replace(clitest.WorksPath, "cluster1", "slow", 1), clitest.ConfigMap, "diff", "work", "web", "-f", "-", "--cluster", "slow",
		"--timeout", "1")
	if slow.Code != 2 || !strings.Contains(slow.ErrOut, "see whether the agent of ") {
		t.Errorf("an agent that does not answer: %+v", slow)
	}
	left := h.Requests("POST")
	for _, request := range left {
		if strings.Contains(request.Path, "/foreign/") {
			t.Errorf("another agent was asked to try something: %+v", request)
		}
	}
}

// An interrupted trial leaves nothing.
func TestDiffWorkInterrupted(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	putAgent(t, h, "cluster1", "capstan-agent")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan clitest.Result)
	go func() {
		done <- clitest.Run(ctx, clitest.ConfigMap, "--kubeconfig", h.File, "diff", "work", "web", "-f", "-", "--cluster", "cluster1")
	}()
	h.WaitForWatch(t, clitest.WorksPath)
	cancel()
	if got := <-done; got.Code != 130 {
		t.Errorf("%+v", got)
	}
	if left := h.Run(t, "", "get", "works"); !strings.Contains(left.Out, "ManifestWorks: none") {
		t.Errorf("left behind: %s", left.Out)
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
	h.Run(t, "", "delete", "work", "wbe", "--clusters", "cluster1,cluster2").Fails(t, `"wbe" not found`, "capstan get works")
	h.Run(t, "", "delete", "work", "web").Fails(t, "either --cluster or --clusters needs to be set")
	h.Run(t, "", append(remove, "--dry-run")...).Succeeds(t, "would delete work web in cluster cluster1\n",
		"work web in cluster idle is already deleted\n")
	if deleted := h.Requests("DELETE"); len(deleted) > 0 {
		t.Fatalf("it deleted %+v", deleted)
	}
	h.Run(t, "", remove...).Succeeds(t,
		"work web in cluster idle is already deleted\nwork web in cluster cluster1 is deleted\nwork web in cluster cluster2 is deleted\n")

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
