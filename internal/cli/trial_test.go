package cli_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// putAgent is an available cluster with an agent of a kind.
func (h hub) putAgent(t *testing.T, name, manager string) {
	t.Helper()
	c := acceptedCluster(name, "ManagedClusterConditionAvailable")
	c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Subresource: "status"}}
	h.Put(t, clustersPath+"/"+name, c)
}

// tried has the agent of a cluster say of each manifest what would become of it.
func (h hub) tried(t *testing.T, cluster string, reasons ...string) {
	t.Helper()
	h.OnCreate(strings.Replace(worksPath, "cluster1", cluster, 1), func(created *unstructured.Unstructured) {
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
	h := newHub(t)
	h.putAgent(t, "cluster1", "capstan-agent")
	h.putAgent(t, "cluster2", "capstan-agent")
	h.tried(t, "cluster1", "WouldCreate")
	h.tried(t, "cluster2", "WouldChange")
	create := []string{"create", "work", "web", "-f", "-", "--clusters", "cluster1,cluster2", "--dry-run=server"}
	got := h.run(t, configMap, create...)
	got.succeeds(t, "Clusters: 2\n├── cluster1: 1 would be created\n│   └── ConfigMap default/settings: would be created\n"+
		"└── cluster2: 1 would change\n    └── ConfigMap default/settings: would change\n"+
		"        ├── data.key: \"a\" -> \"b\"\n        └── data.other: (none) -> \"c\"\n")
	if !strings.Contains(got.errOut, "running in dry-run mode") {
		t.Errorf("nothing says that nothing was done: %s", got.errOut)
	}
	if deleted := h.Requests("DELETE"); len(deleted) != 2 || len(h.Requests("PUT")) != 0 {
		t.Errorf("deleted %+v, changed %+v", deleted, h.Requests("PUT"))
	}
	h.tried(t, "cluster2", "WouldFail")
	h.run(t, configMap, create...).fails(t, "cluster cluster2 would not take 1 of the manifests of work web")
}

// Gap W12: the exit code is that of kubectl diff, and what a work drops is a difference, too.
func TestDiffWork(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putAgent(t, "cluster1", "capstan-agent")
	h.tried(t, "cluster1", "WouldNotChange")
	diff := []string{"diff", "work", "web", "-f", "-", "--clusters", "cluster1"}
	h.run(t, configMap, diff...).succeeds(t, "cluster1: 1 would not change\n")

	h.Put(t, worksPath+"/web", &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster1"},
		Spec: workv1.ManifestWorkSpec{
			Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{
				{RawExtension: runtime.RawExtension{
					Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"dropped"}}`)}},
			}},
			ManifestConfigs: []workv1.ManifestConfigOption{{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: "*"}}},
		},
	})
	got := h.run(t, configMap, diff...)
	if got.code != 1 || got.errOut != "" || !strings.Contains(got.out, "ConfigMap default/dropped: would be deleted") {
		t.Errorf("%+v", got)
	}
	if sent := h.Requests("POST"); !strings.Contains(sent[len(sent)-1].Body, `"manifestConfigs":[{`) {
		t.Errorf("tried without the rest of the work: %s", sent[len(sent)-1].Body)
	}
	if table := h.run(t, configMap, append(diff, "-o", "table")...); !strings.Contains(table.out,
		"cluster1   web    ConfigMap default/dropped    would be deleted") {
		t.Errorf("as a table: %+v", table)
	}
	if asJSON := h.run(t, configMap, append(diff, "-o", "json")...); !strings.Contains(asJSON.out, `"result": "WouldDelete"`) {
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
		h.Put(t, clustersPath+"/silent", acceptedCluster("silent"))
		h.putAgent(t, "foreign", "work-agent")
		h.putAgent(t, "closed", "capstan-agent")
		h.putAgent(t, "slow", "capstan-agent")
		h.Answer("POST "+strings.Replace(worksPath, "cluster1", "closed", 1), fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
			"you may not create works"))
		if got := h.run(t, configMap, args...); got.code != 2 || !strings.Contains(got.errOut, says) {
			t.Errorf("%v: %+v, want exit code 2 and %q", args, got, says)
		}
	}
	slow := h.timesOut(t, strings.Replace(worksPath, "cluster1", "slow", 1), configMap, "diff", "work", "web", "-f", "-", "--cluster", "slow",
		"--timeout", "1")
	if slow.code != 2 || !strings.Contains(slow.errOut, "see whether the agent of ") {
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
	h := newHub(t)
	h.putAgent(t, "cluster1", "capstan-agent")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan result)
	go func() {
		done <- run(ctx, configMap, "--kubeconfig", h.kubeconfig, "diff", "work", "web", "-f", "-", "--cluster", "cluster1")
	}()
	h.awaitWatch(t, worksPath)
	cancel()
	if got := <-done; got.code != 130 {
		t.Errorf("%+v", got)
	}
	if left := h.run(t, "", "get", "works"); !strings.Contains(left.out, "ManifestWorks: none") {
		t.Errorf("left behind: %s", left.out)
	}
}

// CA-34
func TestDeleteWork(t *testing.T) {
	t.Parallel()
	h := newHubWithClusters(t)
	put := func(cluster string, labels map[string]string) {
		h.Put(t, strings.Replace(worksPath, "cluster1", cluster, 1)+"/web",
			&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: cluster, Labels: labels}})
	}
	put("cluster1", nil)
	put("cluster2", nil)
	remove := []string{"delete", "work", "web", "--clusters", "cluster1,cluster2,idle"}
	h.run(t, "", "delete", "work", "web", "--clusters", "cluster1,gone").fails(t, `"gone" not found`, "capstan get clusters")
	h.run(t, "", "delete", "work", "wbe", "--clusters", "cluster1,cluster2").fails(t, `"wbe" not found`, "capstan get works")
	h.run(t, "", "delete", "work", "web").fails(t, "either --cluster or --clusters needs to be set")
	h.run(t, "", append(remove, "--dry-run")...).succeeds(t, "would delete work web in cluster cluster1\n",
		"work web in cluster idle is already deleted\n")
	if deleted := h.Requests("DELETE"); len(deleted) > 0 {
		t.Fatalf("it deleted %+v", deleted)
	}
	h.run(t, "", remove...).succeeds(t,
		"work web in cluster idle is already deleted\nwork web in cluster cluster1 is deleted\nwork web in cluster cluster2 is deleted\n")

	put("cluster1", map[string]string{"work.open-cluster-management.io/manifestworkreplicaset": "default.web"})
	h.run(t, "", "delete", "work", "web", "--cluster", "cluster1").fails(t, "belongs to ManifestWorkReplicaSet default.web")

	put("cluster1", nil) // its agent is gone: the finalizer stays
	h.Answer("DELETE "+worksPath+"/web", fakehub.JSON(`{}`))
	h.timesOut(t, worksPath, "", "delete", "work", "web", "--cluster", "cluster1", "--timeout", "1").fails(t, "not done after 1s", "--force")
	released := make(chan struct{})
	h.Answer("PATCH "+worksPath+"/web", func(w http.ResponseWriter, r *http.Request) {
		close(released)
		fakehub.JSON(`{}`)(w, r)
	})
	go func() {
		<-released
		h.Remove(t, worksPath+"/web")
	}()
	h.run(t, "", "delete", "work", "web", "--cluster", "cluster1", "--force").succeeds(t, "work web in cluster cluster1 is deleted")
	if sent := h.Requests("PATCH"); sent[0].Body != `{"metadata":{"finalizers":null}}` {
		t.Errorf("it sent %+v", sent)
	}
}
