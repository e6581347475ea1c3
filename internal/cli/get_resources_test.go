package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// podsOf is a cluster with pods and deployments.
func podsOf(names ...string) *fakehub.ClusterAPI {
	pods := fakehub.Collection{
		GroupVersion: "v1",
		APIResource:  metav1.APIResource{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, ShortNames: []string{"po"}},
		Columns:      []metav1.TableColumnDefinition{{Name: "Name"}, {Name: "Restarts"}, {Name: "Age"}, {Name: "Node", Priority: 1}},
	}
	for _, name := range names {
		pods.Objects = append(pods.Objects, fakehub.Object{Namespace: "default", Name: name, Cells: []any{name, 1234567, "5d", "node-of-" + name}})
	}
	deployments := fakehub.Collection{
		GroupVersion: "apps/v1",
		APIResource: metav1.APIResource{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true,
			ShortNames: []string{"deploy"}},
		Columns: []metav1.TableColumnDefinition{{Name: "Name"}},
		Objects: []fakehub.Object{{Namespace: "web", Name: "front", Cells: []any{"front"}}},
	}
	return &fakehub.ClusterAPI{Collections: []fakehub.Collection{pods, deployments}, Answers: map[string]http.HandlerFunc{}}
}

// newHubWithPods has two clusters with pods, and the cluster idle, which is not connected.
func newHubWithPods(t *testing.T) hub {
	t.Helper()
	h := newHubWithClusters(t)
	h.Connect("cluster1", podsOf("a", "long-name"))
	h.Connect("cluster2", podsOf("c"))
	return h
}

// CA-02: objects of several clusters are one table, in the order that the clusters were named in.
func TestGetResources(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	got := h.run(t, "", "get", "pods", "--clusters", "cluster2,cluster1")
	want := `CLUSTER    NAME        RESTARTS   AGE
cluster2   c           1234567    5d
cluster1   a           1234567    5d
cluster1   long-name   1234567    5d
`
	if got.code != 0 || got.out != want || got.errOut != "" {
		t.Errorf("got %+v, want\n%s", got, want)
	}
	h.run(t, "", "get", "po", "-c", "cluster1", "-o", "wide").succeeds(t, "NODE", "node-of-a")
	h.run(t, "", "get", "pod/a", "-c", "cluster1").succeeds(t, "cluster1   a ")
	h.run(t, "", "get", "Deployment.apps", "-A", "-c", "cluster1").succeeds(t, "CLUSTER    NAMESPACE   NAME\ncluster1   web         front\n")
	for _, word := range []string{"deploy", "deployments", "deployments.v1.apps", "deployment.apps"} {
		h.run(t, "", "get", word, "front", "-n", "web", "-c", "cluster2", "-o", "name").succeeds(t, "cluster2 deployment.apps/front\n")
	}
	none := h.run(t, "", "get", "pods", "-n", "empty", "-c", "cluster1", "-l", "app=x")
	none.succeeds(t)
	if !strings.Contains(none.errOut, `No pods with app=x in namespace "empty"`) {
		t.Errorf("nothing there: %+v", none)
	}
}

// CA-02: a List in YAML or JSON says which cluster each object is of, and keeps large numbers.
func TestGetResourcesAsList(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	for _, format := range []string{"json", "yaml"} {
		got := h.run(t, "", "get", "pods", "--clusters", "cluster1,cluster2", "-o", format)
		got.succeeds(t, "1152921504606846976")
		content, err := yaml.YAMLToJSON([]byte(got.out))
		if err != nil {
			t.Fatal(err)
		}
		list := &unstructured.UnstructuredList{}
		if err := json.Unmarshal(content, list); err != nil {
			t.Fatalf("%v:\n%s", err, got.out)
		}
		var found []string
		for i := range list.Items {
			item := &list.Items[i]
			found = append(found, item.GetAnnotations()["capstan.io/cluster-name"]+"/"+item.GetName())
			if item.GetKind() != "Pod" || item.GetAPIVersion() != "v1" || item.GetManagedFields() != nil {
				t.Errorf("%s: %v", format, item)
			}
		}
		if fmt.Sprint(found) != "[cluster1/a cluster1/long-name cluster2/c]" || list.GetKind() != "List" {
			t.Errorf("%s has %v of a %s", format, found, list.GetKind())
		}
		empty := h.run(t, "", "get", "pods", "--clusters", "cluster1", "-n", "empty", "-o", format)
		if content, err := yaml.YAMLToJSON([]byte(empty.out)); err != nil || !strings.Contains(string(content), `"items":[]`) {
			t.Errorf("%s without objects: %s, %v", format, content, err)
		}
	}
}

// CA-02: clusters that do not answer are listed, with the reason of each, and the others are printed.
func TestGetResourcesPartly(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	for _, name := range []string{"slow", "forbidden", "noright", "bare"} {
		h.Put(t, clustersPath+"/"+name, acceptedCluster(name))
	}
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	slow, forbidden, bare := podsOf(), podsOf(), podsOf()
	slow.Answers["/api/v1/namespaces/default/pods"] = func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler) // no answer, not an empty one
		}
	}
	forbidden.Answers["/api/v1/namespaces/default/pods"] = fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		`pods is forbidden: User "alice" cannot list resource "pods"`)
	bare.Collections = nil
	h.Connect("slow", slow)
	h.Connect("forbidden", forbidden)
	h.Connect("noright", fakehub.RefuseCluster(http.StatusForbidden, metav1.StatusReasonForbidden, "noright"))
	h.Connect("bare", bare)
	got := h.run(t, "", "get", "pods", "--clusters", "forbidden,cluster1,noright,bare,idle,gone,cluster2")
	got.fails(t, "5 of 7 clusters could not be read:", `forbidden: forbidden: pods is forbidden: User "alice"`,
		"noright: forbidden: managedclusters", `bare: no such resource: it serves no "pods"`, "idle: not connected: cluster idle has no tunnel",
		`gone: the hub has no cluster "gone"`, "capstan proxy health")
	h.run(t, "", "get", "pods", "--clusters", "slow", "--timeout", "1").fails(t, "slow: time-out: no answer in 1s", "--timeout")
	for _, row := range []string{"cluster1   a ", "cluster1   long-name ", "cluster2   c "} {
		if !strings.Contains(got.out, row) {
			t.Errorf("%q is missing in:\n%s", row, got.out)
		}
	}
	h.run(t, "", "get", "pods", "c", "--clusters", "cluster1,cluster2").fails(t, "1 of 2 clusters", `cluster1: pods "c" not found`)
	h.CloseClientConnections()
	h.Close()
	down := h.run(t, "", "get", "pods", "--clusters", "cluster1,cluster2")
	down.fails(t, "find out how clusters are reached: nothing answers at")
	if strings.Count(down.errOut, "nothing answers") != 1 {
		t.Errorf("one reason several times:\n%s", down.errOut)
	}
}

// CA-02: servers may have different columns, or none; the columns of the same name are one.
func TestGetResourcesAlignsColumns(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	newer, old := podsOf("b"), podsOf("d")
	newer.Collections[0].Columns = []metav1.TableColumnDefinition{{Name: "Name"}, {Name: "Ready"}, {Name: "Restarts"}, {Name: "Age"}}
	newer.Collections[0].Objects[0].Cells = []any{"b\x1b[31m", true, nil, "1d"}
	old.NoTables = true
	h.Connect("cluster2", newer)
	h.Connect("idle", old)
	got := h.run(t, "", "get", "pods", "--clusters", "cluster1,cluster2,idle")
	got.succeeds(t, "CLUSTER    NAME        READY   RESTARTS   AGE\n", "cluster1   a           -       1234567    5d\n",
		"cluster2   b [31m      true    -          1d\n", "idle       d           -       -          ")
}

// CA-02: a cluster that does not answer keeps nobody waiting for what the others have answered, whichever was named first.
func TestGetResourcesAsTheyAnswer(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "name", "json"} {
		h := newHubWithPods(t)
		slow, release := podsOf("late"), make(chan struct{})
		answer := *slow
		slow.Answers["/api/v1/namespaces/default/pods"] = func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
				answer.Answers = nil
				answer.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		}
		h.Connect("cluster1", slow)
		r := h.start(t, "get", "pods", "--clusters", "cluster1,cluster2", "--timeout", "60", "-o", format)
		lines := []string{r.line()}
		for !strings.Contains(lines[len(lines)-1], "cluster2") {
			lines = append(lines, r.line())
		}
		close(release)
		for !strings.Contains(lines[len(lines)-1], "cluster1") {
			lines = append(lines, r.line())
		}
		if early := strings.Join(lines[:len(lines)-1], ""); strings.Contains(early, "cluster1") {
			t.Errorf("-o %s has cluster1 before it answers: %s", format, early)
		}
		for r.output.Scan() { // up to the end
		}
		if code := <-r.code; code != 0 {
			t.Errorf("-o %s: exit code %d: %s", format, code, r.errOut)
		}
	}
}

// CA-02: however many objects there are, they come in pages.
func TestGetResourcesInPages(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	var names []string
	for i := range 1203 {
		names = append(names, fmt.Sprintf("pod-%04d", i))
	}
	h.Connect("cluster1", podsOf(names...))
	got := h.run(t, "", "get", "pods", "--clusters", "cluster1,cluster2", "-o", "name")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.code != 0 || len(lines) != 1204 || lines[0] != "cluster1 pod/pod-0000" || lines[1202] != "cluster1 pod/pod-1202" || lines[1203] != "cluster2 pod/c" {
		t.Errorf("%d lines, from %q to %q: %s", len(lines), lines[0], lines[len(lines)-1], got.errOut)
	}
}

// CA-02: the clusters may be those of a placement or of a cluster set.
func TestGetResourcesOfPlacementAndSet(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	h.putPlacement(t, "default", "web", "cluster2")
	h.putPlacement(t, "default", "none")
	if got := h.run(t, "", "get", "pods", "--placement", "default/web", "-o", "name"); got.out != "cluster2 pod/c\n" {
		t.Errorf("%+v", got)
	}
	h.run(t, "", "get", "pods", "--placement", "default/none").fails(t, "selects no clusters", "capstan explain placement")
	h.run(t, "", "get", "pods", "--placement", "web").fails(t, "--placement", "default/web")

	member := acceptedCluster("cluster1")
	member.Labels = map[string]string{"cluster.open-cluster-management.io/clusterset": "prod"}
	h.Put(t, clustersPath+"/cluster1", member)
	h.putSet(t, "prod")
	h.putSet(t, "empty")
	if got := h.run(t, "", "get", "pods", "--clusterset", "prod", "-o", "name"); got.out != "cluster1 pod/a\ncluster1 pod/long-name\n" {
		t.Errorf("%+v", got)
	}
	h.run(t, "", "get", "pods", "--clusterset", "empty").fails(t, "has no clusters", "capstan clusterset set empty")
	h.run(t, "", "get", "pods", "--clusterset", "gone").fails(t, `"gone" not found`)
}

// CA-02: the clusters may be all that the hub has accepted, of which those that do not answer are listed.
func TestGetResourcesOfAllClusters(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	waiting := acceptedCluster("waiting")
	waiting.Spec.HubAcceptsClient = false
	h.Put(t, clustersPath+"/waiting", waiting)
	got := h.run(t, "", "get", "pods", "--all-clusters", "-o", "name")
	got.fails(t, "1 of 3 clusters could not be read:", "idle: not connected")
	if got.out != "cluster1 pod/a\ncluster1 pod/long-name\ncluster2 pod/c\n" || strings.Contains(got.errOut, "waiting") {
		t.Errorf("%+v", got)
	}
	h.run(t, "", "get", "pods", "--all-clusters", "--clusterset", "prod").fails(t, "all-clusters", "clusterset")
	none := newHub(t)
	none.run(t, "", "get", "pods", "--all-clusters").fails(t, "the hub has accepted no clusters", "capstan accept")
}

// CA-02
func TestGetResourcesBadCommandLine(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	for command, says := range map[string][]string{
		"get pods":                                   {`unknown command "pods"`, "capstan get pods --clusters CLUSTER,..."},
		"get --clusters c":                           {"Name a resource"},
		"get pods,services -c c":                     {"one resource at a time"},
		"get pods a b -c c":                          {"one name at most"},
		"get pods -c C_1":                            {`"C_1" is no name of a cluster`},
		"get pods -c c -n A_":                        {"--namespace"},
		"get pods -c c -A -n x":                      {"all-namespaces"},
		"get pods x -c c -A":                         {"--all-namespaces: an object with a name"},
		"get pods x -c c -l a=b":                     {"--selector, --field-selector"},
		"get pods -c c -l a=(":                       {"--selector"},
		"get pods -c c --field-selector a":           {"--field-selector"},
		"get pods -c c -o tree":                      {"table, wide, yaml, json, name"},
		"get pods -c c --placement default/web":      {"placement"},
		"get pods ../../../secrets -c c -n default":  {"a name is no path"},
		"get pods .. -c c":                           {"a name is no path"},
		"get pods/a/../../../../x -c c -n default":   {"a name is no path"},
		"get pods --clusters c --clusterset default": {"clusterset"},
	} {
		h.run(t, "", strings.Fields(command)...).fails(t, says...)
	}
	h.run(t, "", "get").succeeds(t, "Available Commands", "--clusterset")
}

// CA-02: with --watch, rows of what changes follow, of any cluster, until nothing is left to watch.
func TestGetResourcesWatch(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	const path = "/api/v1/namespaces/default/pods"
	watched := map[string]*fakehub.ClusterAPI{"cluster1": podsOf("a"), "cluster2": podsOf("c")}
	events := map[string]chan string{}
	for name, api := range watched {
		events[name] = make(chan string)
		api.Watch = map[string]chan string{path: events[name]}
		h.Connect(name, api)
	}
	r := h.start(t, "get", "pods", "--clusters", "cluster1,cluster2,idle", "--watch")
	expect := func(words ...string) {
		t.Helper()
		if got := strings.Fields(r.line()); strings.Join(got, " ") != strings.Join(words, " ") {
			t.Fatalf("%v, want %v", got, words)
		}
	}
	expect("CLUSTER", "NAME", "RESTARTS", "AGE")
	first := []string{strings.Fields(r.line())[0], strings.Fields(r.line())[0]} // as they answer
	if slices.Sort(first); !slices.Equal(first, []string{"cluster1", "cluster2"}) {
		t.Fatalf("the first rows are those of %v", first)
	}
	row := func(event, name string) string {
		return fmt.Sprintf(`{"type":%q,"object":{"kind":"Table","metadata":{"resourceVersion":"7"},"rows":[{"cells":[%q,1,"0s","n"]}]}}`, event, name)
	}
	events["cluster2"] <- row("ADDED", "new")
	expect("cluster2", "new", "1", "0s")
	events["cluster1"] <- row("BOOKMARK", "")
	events["cluster1"] <- row("MODIFIED", "a")
	expect("cluster1", "a", "1", "0s")
	events["cluster1"] <- `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}`
	close(events["cluster2"]) // which ends this watch, and the next one before it has an event
	if code := <-r.code; code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, words := range []string{"1 of 3 clusters could not be read", "cluster1: no longer watched: too old",
		"cluster2: no longer watched: ", "ends watches as soon as they begin", "no cluster is watched any more"} {
		if !strings.Contains(r.errOut.String(), words) {
			t.Errorf("%q is missing in %s", words, r.errOut)
		}
	}
	h.run(t, "", "get", "pods", "--clusters", "cluster1", "-w", "-o", "json").fails(t, "--watch: shows rows of tables")
}
