package cli_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const (
	setsPath     = "/apis/cluster.open-cluster-management.io/v1beta2/managedclustersets"
	bindingsPath = "/apis/cluster.open-cluster-management.io/v1beta2/namespaces/team-a/managedclustersetbindings"
)

func (h hub) putSet(t *testing.T, name string) {
	t.Helper()
	h.Put(t, setsPath+"/"+name, &clusterv1beta2.ManagedClusterSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1beta2.GroupVersion.String(), Kind: "ManagedClusterSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "another"}}},
		Status: clusterv1beta2.ManagedClusterSetStatus{
			Conditions: []metav1.Condition{{Type: "ClusterSetEmpty", Status: metav1.ConditionFalse, Message: "status of " + name}},
		},
	})
}

func (h hub) putNamespace(t *testing.T, name string) {
	t.Helper()
	h.Put(t, "/api/v1/namespaces/"+name, &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name},
	})
}

func (h hub) set(t *testing.T, name string) clusterv1beta2.ManagedClusterSet {
	t.Helper()
	var set clusterv1beta2.ManagedClusterSet
	h.Get(t, setsPath+"/"+name, &set)
	return set
}

// CA-24
func TestGetClusterSets(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	for _, name := range []string{"default", "prod", "staging"} {
		h.putSet(t, name)
	}
	h.run(t, "", "clusterset", "bind", "prod", "--namespace", "team-a").succeeds(t)

	h.run(t, "", "get", "clustersets").succeeds(t, "ManagedClusterSets: 3", "BoundNamespaces: team-a", "Status: status of prod",
		"Clusters: cluster1")
	table := h.run(t, "", "get", "clustersets", "prod", "-o", "table")
	table.succeeds(t, "NAME", "BOUND NAMESPACES", "STATUS", "MANAGED NAMESPACES", "team-a", "status of prod")
	if strings.Contains(table.out, "staging") {
		t.Errorf("it shows sets that were not asked for:\n%s", table.out)
	}
	var list clusterv1beta2.ManagedClusterSetList
	if err := json.Unmarshal([]byte(h.run(t, "", "get", "clustersets", "prod", "staging", "-o", "json").out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || list.Kind != "ManagedClusterSetList" || list.Items[0].Kind != "ManagedClusterSet" ||
		list.Items[0].ManagedFields != nil {
		t.Errorf("sets as JSON: %+v", list)
	}
	h.run(t, "", "get", "clustersets", "prod", "-o", "yaml").succeeds(t,
		"apiVersion: cluster.open-cluster-management.io/v1beta2\nkind: ManagedClusterSet\n")
	h.run(t, "", "get", "clustersets", "gone").fails(t, `"gone" not found`, "capstan get clustersets")
	h.run(t, "", "get", "clustersets", "prod", "gone").fails(t, `cluster set "gone" is not there`, "capstan get clustersets")
	if got := newHub(t).run(t, "", "get", "clustersets"); got.code != 0 || !strings.Contains(got.errOut, "capstan create clusterset") {
		t.Errorf("of a hub without sets: %+v", got)
	}
}

// CA-29
func TestCreateClusterSet(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.run(t, "", "create", "clusterset", "prod", "--dry-run").succeeds(t, "kind: ManagedClusterSet", "name: prod", "ExclusiveClusterSetLabel")
	if h.Has(setsPath + "/prod") {
		t.Error("a dry run created a set")
	}
	h.run(t, "", "create", "clusterset", "prod", "staging").succeeds(t, "Clusterset prod is created\nClusterset staging is created\n")
	if set := h.set(t, "prod"); set.Spec.ClusterSelector.SelectorType != clusterv1beta2.ExclusiveClusterSetLabel {
		t.Errorf("created %+v", set.Spec)
	}
	h.run(t, "", "create", "clusterset", "prod").succeeds(t, "Clusterset prod is already created")
	h.run(t, "", "create", "clusterset").fails(t, "NAME is missing", "create clusterset NAME...")
	h.run(t, "", "create", "clusterset", "Prod_1").fails(t, `"Prod_1"`, "small letters")
	h.run(t, "", "create", "clusterset", strings.Repeat("a", 64)).fails(t, "at most 63")
}

// CA-33
func TestDeleteClusterSet(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	for _, name := range []string{"default", "prod", "staging"} {
		h.putSet(t, name)
	}
	h.run(t, "", "clusterset", "bind", "staging", "--namespace", "team-a").succeeds(t)
	h.run(t, "", "delete", "clusterset", "prod", "default").fails(t, "default", "every hub has")
	h.run(t, "", "delete", "clusterset", "global").fails(t, "every hub has")
	h.run(t, "", "delete", "clusterset", "prod", "--dry-run").succeeds(t, "would delete Clusterset prod")
	if !h.Has(setsPath + "/prod") {
		t.Fatal("prod is deleted")
	}
	got := h.run(t, "", "delete", "clusterset", "staging", "prod", "gone")
	got.fails(t, "cluster set staging is bound", "capstan clusterset unbind staging --namespace team-a", `"gone" not found`,
		"capstan clusterset set default --clusters cluster1")
	if got.out != "Clusterset prod is deleted\n" || h.Has(setsPath+"/prod") || !h.Has(setsPath+"/staging") {
		t.Errorf("deleted the wrong sets: %s", got.out)
	}
	h.run(t, "", "clusterset", "unbind", "staging", "-n", "team-a").succeeds(t)
	h.run(t, "", "delete", "clusterset", "staging").succeeds(t, "Clusterset staging is deleted")
}

// CA-33: a set that a user's finalizer holds is not gone yet.
func TestDeleteClusterSetWaits(t *testing.T) {
	t.Parallel()
	held := func() hub {
		h := newHub(t)
		h.putSet(t, "prod")
		h.Answer("DELETE "+setsPath+"/prod", fakehub.JSON(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
		return h
	}
	held().timesOut(t, setsPath, "", "delete", "clusterset", "prod", "--timeout", "1").fails(t, "delete cluster set prod", "not done after 1s")
	h := held()
	done := make(chan result)
	go func() { done <- h.run(t, "", "delete", "clusterset", "prod") }()
	h.awaitWatch(t, setsPath)
	h.Remove(t, setsPath+"/prod")
	(<-done).succeeds(t, "Clusterset prod is deleted")
}

// CA-35
func TestBindClusterSet(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putSet(t, "prod")
	bind := func(verb string, more ...string) result {
		return h.run(t, "", append([]string{"clusterset", verb, "prod", "--namespace", "team-a"}, more...)...)
	}
	bind("bind", "--dry-run").succeeds(t, "kind: ManagedClusterSetBinding", "namespace: team-a", "clusterSet: prod")
	if h.Has(bindingsPath + "/prod") {
		t.Error("a dry run bound the set")
	}
	bind("bind").succeeds(t, "Clusterset prod is bound to Namespace team-a")
	var binding clusterv1beta2.ManagedClusterSetBinding
	h.Get(t, bindingsPath+"/prod", &binding)
	if binding.Spec.ClusterSet != "prod" {
		t.Errorf("bound %+v", binding.Spec)
	}
	bind("bind").succeeds(t, "Clusterset prod is already bound to Namespace team-a")
	bind("unbind", "--dry-run").succeeds(t, "would unbind Clusterset prod from Namespace team-a")
	if !h.Has(bindingsPath + "/prod") {
		t.Error("a dry run unbound the set")
	}
	bind("unbind").succeeds(t, "Clusterset prod is unbound from Namespace team-a")
	if h.Has(bindingsPath + "/prod") {
		t.Error("the binding is still there")
	}
	bind("unbind").succeeds(t, "Clusterset prod is already unbound from Namespace team-a")

	h.run(t, "", "clusterset", "bind", "prod").succeeds(t, "bound to Namespace default")
	for _, verb := range []string{"bind", "unbind"} {
		h.run(t, "", "clusterset", verb, "misspelt").fails(t, `"misspelt" not found`, "capstan get clustersets")
		h.run(t, "", "clusterset", verb, "prod", "-n", "Team").fails(t, "--namespace", `"Team"`, "small letters")
		h.run(t, "", "clusterset", verb).fails(t, "0 names given", "clusterset "+verb+" NAME")
	}
	h.Answer("POST "+bindingsPath, fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "team-a" not found`))
	bind("bind").fails(t, `no namespace "team-a"`, "kubectl create namespace team-a")
	h.Answer("POST "+bindingsPath, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "may not bind"))
	bind("bind").fails(t, "may not bind", "ask an administrator")
}

// CA-35: a cluster moves from set to set by its label, and nothing else of it changes.
func TestSetClusterSet(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	h.putSet(t, "staging")
	got := h.run(t, "", "clusterset", "set", "staging", "--clusters", "cluster1,cluster2", "--dry-run")
	got.succeeds(t, "would set Cluster cluster1, from ClusterSet prod to Clusterset staging",
		"would set Cluster cluster2 to Clusterset staging")
	if patched := h.Requests(http.MethodPatch); len(patched) != 0 {
		t.Errorf("a dry run patched %+v", patched)
	}
	got = h.run(t, "", "clusterset", "set", "staging", "--clusters", "cluster1,gone,cluster2")
	got.fails(t, `"gone" not found`, "capstan get clusters")
	if want := "Cluster cluster1 is set, from ClusterSet prod to Clusterset staging\nCluster cluster2 is set to Clusterset staging\n"; got.out != want {
		t.Errorf("said %q, want %q", got.out, want)
	}
	for _, patch := range h.Requests(http.MethodPatch) {
		if patch.Body != `{"metadata":{"labels":{"cluster.open-cluster-management.io/clusterset":"staging"}}}` {
			t.Errorf("patched %+v", patch)
		}
	}
	var c clusterv1.ManagedCluster
	if h.Get(t, clustersPath+"/cluster1", &c); c.Labels["cluster.open-cluster-management.io/clusterset"] != "staging" {
		t.Errorf("labels %v", c.Labels)
	}
	h.run(t, "", "clusterset", "set", "staging", "-c", "cluster1").succeeds(t, "Cluster cluster1 is already in Clusterset staging")
	h.run(t, "", "clusterset", "set", "misspelt", "-c", "cluster1").fails(t, `"misspelt" not found`, "capstan get clustersets")
	h.run(t, "", "clusterset", "set", "staging").fails(t, "--clusters or --namespaces needs to be set")

	byLabels := h.set(t, "staging")
	byLabels.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
		LabelSelector: &metav1.LabelSelector{}}
	h.Put(t, setsPath+"/staging", &byLabels)
	h.run(t, "", "clusterset", "set", "staging", "-c", "cluster1").fails(t, "its selector matches", "change the labels")
}

// CA-35: namespaces are added to those that the clusters of the set should have.
func TestSetNamespacesOfClusterSet(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putSet(t, "prod")
	set := func(namespaces string, more ...string) result {
		return h.run(t, "", append([]string{"clusterset", "set", "prod", "--namespaces", namespaces}, more...)...)
	}
	set("one", "--dry-run").succeeds(t, "would have Namespace one on all clusters of Clusterset prod")
	set("one,one").succeeds(t, "Namespace one is managed on all clusters of Clusterset prod\n")
	set("one,two").succeeds(t, "Namespace two is managed")
	set("one").succeeds(t, "Clusterset prod manages these namespaces already")
	set("Bad").fails(t, "--namespaces", `"Bad"`)
	if got, want := h.set(t, "prod").Spec.ManagedNamespaces,
		[]clusterv1beta2.ManagedNamespaceConfig{{Name: "one"}, {Name: "two"}}; !slices.Equal(got, want) {
		t.Errorf("managed namespaces %v, want %v", got, want)
	}
}
