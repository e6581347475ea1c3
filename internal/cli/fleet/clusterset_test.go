package fleet_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const bindingsPath = "/apis/cluster.open-cluster-management.io/v1beta2/namespaces/team-a/managedclustersetbindings"

func clusterSet(t *testing.T, h clitest.Hub, name string) clusterv1beta2.ManagedClusterSet {
	t.Helper()
	var set clusterv1beta2.ManagedClusterSet
	h.Get(t, clitest.SetsPath+"/"+name, &set)
	return set
}

// CA-24
func TestGetClusterSets(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	for _, name := range []string{"default", "prod", "staging"} {
		h.PutSet(t, name)
	}
	h.Run(t, "", "clusterset", "bind", "prod", "--namespace", "team-a").Succeeds(t)

	h.Run(t, "", "get", "clustersets").Succeeds(t, "ManagedClusterSets: 3", "BoundNamespaces: team-a", "Status: status of prod",
		"Clusters: cluster1")
	table := h.Run(t, "", "get", "clustersets", "prod", "-o", "table")
	table.Succeeds(t, "NAME", "BOUND NAMESPACES", "STATUS", "MANAGED NAMESPACES", "team-a", "status of prod")
	if strings.Contains(table.Out, "staging") {
		t.Errorf("it shows sets that were not asked for:\n%s", table.Out)
	}
	var list clusterv1beta2.ManagedClusterSetList
	if err := json.Unmarshal([]byte(h.Run(t, "", "get", "clustersets", "prod", "staging", "-o", "json").Out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || list.Kind != "ManagedClusterSetList" || list.Items[0].Kind != "ManagedClusterSet" ||
		list.Items[0].ManagedFields != nil {
		t.Errorf("sets as JSON: %+v", list)
	}
	h.Run(t, "", "get", "clustersets", "prod", "-o", "yaml").Succeeds(t,
		"apiVersion: cluster.open-cluster-management.io/v1beta2\nkind: ManagedClusterSet\n")
	h.Run(t, "", "get", "clustersets", "gone").Fails(t, `"gone" not found`, "capstan get clustersets")
	h.Run(t, "", "get", "clustersets", "prod", "gone").Fails(t, `cluster set "gone" is not there`, "capstan get clustersets")
	if got := clitest.NewHub(t).Run(t, "", "get", "clustersets"); got.Code != 0 || !strings.Contains(got.ErrOut, "capstan create clusterset") {
		t.Errorf("of a hub without sets: %+v", got)
	}
}

// CA-29
func TestCreateClusterSet(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Run(t, "", "create", "clusterset", "prod", "--dry-run").Succeeds(t, "kind: ManagedClusterSet", "name: prod", "ExclusiveClusterSetLabel")
	if h.Has(clitest.SetsPath + "/prod") {
		t.Error("a dry run created a set")
	}
	h.Run(t, "", "create", "clusterset", "prod", "staging").Succeeds(t, "Clusterset prod is created\nClusterset staging is created\n")
	if set := clusterSet(t, h, "prod"); set.Spec.ClusterSelector.SelectorType != clusterv1beta2.ExclusiveClusterSetLabel {
		t.Errorf("created %+v", set.Spec)
	}
	h.Run(t, "", "create", "clusterset", "prod").Succeeds(t, "Clusterset prod is already created")
	h.Run(t, "", "create", "clusterset").Fails(t, "NAME is missing", "create clusterset NAME...")
	h.Run(t, "", "create", "clusterset", "Prod_1").Fails(t, `"Prod_1"`, "small letters")
	h.Run(t, "", "create", "clusterset", strings.Repeat("a", 64)).Fails(t, "at most 63")
}

// CA-33
func TestDeleteClusterSet(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	for _, name := range []string{"default", "prod", "staging"} {
		h.PutSet(t, name)
	}
	h.Run(t, "", "clusterset", "bind", "staging", "--namespace", "team-a").Succeeds(t)
	h.Run(t, "", "delete", "clusterset", "prod", "default").Fails(t, "default", "every hub has")
	h.Run(t, "", "delete", "clusterset", "global").Fails(t, "every hub has")
	h.Run(t, "", "delete", "clusterset", "prod", "--dry-run").Succeeds(t, "would delete Clusterset prod")
	if !h.Has(clitest.SetsPath + "/prod") {
		t.Fatal("prod is deleted")
	}
	got := h.Run(t, "", "delete", "clusterset", "staging", "prod", "gone")
	got.Fails(t, "cluster set staging is bound", "capstan clusterset unbind staging --namespace team-a", `"gone" not found`,
		"capstan clusterset set default --clusters cluster1")
	if got.Out != "Clusterset prod is deleted\n" || h.Has(clitest.SetsPath+"/prod") || !h.Has(clitest.SetsPath+"/staging") {
		t.Errorf("deleted the wrong sets: %s", got.Out)
	}
	h.Run(t, "", "clusterset", "unbind", "staging", "-n", "team-a").Succeeds(t)
	h.Run(t, "", "delete", "clusterset", "staging").Succeeds(t, "Clusterset staging is deleted")
}

// CA-33: a set with a finalizer of a user is not gone yet.
func TestDeleteClusterSetWaits(t *testing.T) {
	t.Parallel()
	withFinalizer := func() clitest.Hub {
		h := clitest.NewHub(t)
		h.PutSet(t, "prod")
		h.Handle("DELETE "+clitest.SetsPath+"/prod", fakehub.JSON(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
		return h
	}
	withFinalizer().TimesOut(t, clitest.SetsPath, "", "delete", "clusterset", "prod", "--timeout", "1").Fails(t, "delete cluster set prod", "not done after 1s")
	h := withFinalizer()
	done := make(chan clitest.Result)
	go func() { done <- h.Run(t, "", "delete", "clusterset", "prod") }()
	h.WaitForWatch(t, clitest.SetsPath)
	h.Remove(t, clitest.SetsPath+"/prod")
	(<-done).Succeeds(t, "Clusterset prod is deleted")
}

// A set that is not gone does not keep the others from being deleted.
func TestDeleteClusterSetsAtTheSameTime(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutSet(t, "prod")
	h.PutSet(t, "staging")
	h.Handle("DELETE "+clitest.SetsPath+"/prod", fakehub.JSON(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	h.TimesOut(t, clitest.SetsPath, "", "delete", "clusterset", "prod", "staging", "--timeout", "1").
		Fails(t, "delete cluster set prod", "not done after 1s")
	if h.Has(clitest.SetsPath + "/staging") {
		t.Error("staging is not deleted")
	}
}

// CA-35
func TestBindClusterSet(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutSet(t, "prod")
	bind := func(verb string, more ...string) clitest.Result {
		return h.Run(t, "", append([]string{"clusterset", verb, "prod", "--namespace", "team-a"}, more...)...)
	}
	bind("bind", "--dry-run").Succeeds(t, "kind: ManagedClusterSetBinding", "namespace: team-a", "clusterSet: prod")
	if h.Has(bindingsPath + "/prod") {
		t.Error("a dry run bound the set")
	}
	bind("bind").Succeeds(t, "Clusterset prod is bound to Namespace team-a")
	var binding clusterv1beta2.ManagedClusterSetBinding
	h.Get(t, bindingsPath+"/prod", &binding)
	if binding.Spec.ClusterSet != "prod" {
		t.Errorf("bound %+v", binding.Spec)
	}
	bind("bind").Succeeds(t, "Clusterset prod is already bound to Namespace team-a")
	bind("unbind", "--dry-run").Succeeds(t, "would unbind Clusterset prod from Namespace team-a")
	if !h.Has(bindingsPath + "/prod") {
		t.Error("a dry run unbound the set")
	}
	bind("unbind").Succeeds(t, "Clusterset prod is unbound from Namespace team-a")
	if h.Has(bindingsPath + "/prod") {
		t.Error("the binding is still there")
	}
	bind("unbind").Succeeds(t, "Clusterset prod is already unbound from Namespace team-a")

	h.Run(t, "", "clusterset", "bind", "prod").Succeeds(t, "bound to Namespace default")
	for _, verb := range []string{"bind", "unbind"} {
		h.Run(t, "", "clusterset", verb, "misspelt").Fails(t, `"misspelt" not found`, "capstan get clustersets")
		h.Run(t, "", "clusterset", verb, "prod", "-n", "Team").Fails(t, "--namespace", `"Team"`, "small letters")
		h.Run(t, "", "clusterset", verb).Fails(t, "0 names given", "clusterset "+verb+" NAME")
	}
	h.Handle("POST "+bindingsPath, fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "team-a" not found`))
	bind("bind").Fails(t, `no namespace "team-a"`, "kubectl create namespace team-a")
	h.Handle("POST "+bindingsPath, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "may not bind"))
	bind("bind").Fails(t, "may not bind", "ask an administrator")
}

// CA-35: a cluster moves from set to set by its label, and nothing else of it changes.
func TestSetClusterSet(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutSet(t, "staging")
	got := h.Run(t, "", "clusterset", "set", "staging", "--clusters", "cluster1,cluster2", "--dry-run")
	got.Succeeds(t, "would set Cluster cluster1, from ClusterSet prod to Clusterset staging",
		"would set Cluster cluster2 to Clusterset staging")
	if patched := h.Requests(http.MethodPatch); len(patched) != 0 {
		t.Errorf("a dry run patched %+v", patched)
	}
	got = h.Run(t, "", "clusterset", "set", "staging", "--clusters", "cluster1,gone,cluster2")
	got.Fails(t, `"gone" not found`, "capstan get clusters")
	if want := "Cluster cluster1 is set, from ClusterSet prod to Clusterset staging\nCluster cluster2 is set to Clusterset staging\n"; got.Out != want {
		t.Errorf("said %q, want %q", got.Out, want)
	}
	for _, patch := range h.Requests(http.MethodPatch) {
		if patch.Body != `{"metadata":{"labels":{"cluster.open-cluster-management.io/clusterset":"staging"}}}` {
			t.Errorf("patched %+v", patch)
		}
	}
	var c clusterv1.ManagedCluster
	if h.Get(t, clitest.ClustersPath+"/cluster1", &c); c.Labels["cluster.open-cluster-management.io/clusterset"] != "staging" {
		t.Errorf("labels %v", c.Labels)
	}
	h.Run(t, "", "clusterset", "set", "staging", "-c", "cluster1").Succeeds(t, "Cluster cluster1 is already in Clusterset staging")
	h.Run(t, "", "clusterset", "set", "misspelt", "-c", "cluster1").Fails(t, `"misspelt" not found`, "capstan get clustersets")
	h.Run(t, "", "clusterset", "set", "staging").Fails(t, "--clusters or --namespaces needs to be set")

	byLabels := clusterSet(t, h, "staging")
	byLabels.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
		LabelSelector: &metav1.LabelSelector{}}
	h.Put(t, clitest.SetsPath+"/staging", &byLabels)
	h.Run(t, "", "clusterset", "set", "staging", "-c", "cluster1").Fails(t, "its selector matches", "change the labels")
}

// CA-35: namespaces are added to those that the clusters of the set should have.
func TestSetNamespacesOfClusterSet(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutSet(t, "prod")
	set := func(namespaces string, more ...string) clitest.Result {
		return h.Run(t, "", append([]string{"clusterset", "set", "prod", "--namespaces", namespaces}, more...)...)
	}
	set("one", "--dry-run").Succeeds(t, "would have Namespace one on all clusters of Clusterset prod")
	set("one,one").Succeeds(t, "Namespace one is managed on all clusters of Clusterset prod\n")
	set("one,two").Succeeds(t, "Namespace two is managed")
	set("one").Succeeds(t, "Clusterset prod manages these namespaces already")
	set("Bad").Fails(t, "--namespaces", `"Bad"`)
	if got, want := clusterSet(t, h, "prod").Spec.ManagedNamespaces,
		[]clusterv1beta2.ManagedNamespaceConfig{{Name: "one"}, {Name: "two"}}; !slices.Equal(got, want) {
		t.Errorf("managed namespaces %v, want %v", got, want)
	}
}
