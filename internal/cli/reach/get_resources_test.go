package reach_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/cli/clitest"
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
	return &fakehub.ClusterAPI{Collections: []fakehub.Collection{pods, deployments}, Handlers: map[string]http.HandlerFunc{}}
}

// newHubWithPods has two clusters with pods, and the cluster idle, which is not connected.
func newHubWithPods(t *testing.T) clitest.Hub {
	t.Helper()
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster1", podsOf("a", "long-name"))
	h.Connect("cluster2", podsOf("c"))
	return h
}

// CA-02: objects of several clusters are one table, in the order that the clusters were named in.
func TestGetResources(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	got := h.Run(t, "", "get", "pods", "--clusters", "cluster2,cluster1")
	want := `CLUSTER    NAME        RESTARTS   AGE
cluster2   c           1234567    5d
cluster1   a           1234567    5d
cluster1   long-name   1234567    5d
`
	if got.Code != 0 || got.Out != want || got.ErrOut != "" {
		t.Errorf("got %+v, want\n%s", got, want)
	}
	h.Run(t, "", "get", "po", "-c", "cluster1", "-o", "wide").Succeeds(t, "NODE", "node-of-a")
	h.Run(t, "", "get", "pod/a", "-c", "cluster1").Succeeds(t, "cluster1   a ")
	h.Run(t, "", "get", "Deployment.apps", "-A", "-c", "cluster1").Succeeds(t, "CLUSTER    NAMESPACE   NAME\ncluster1   web         front\n")
	for _, word := range []string{"deploy", "deployments", "deployments.v1.apps", "deployment.apps"} {
		h.Run(t, "", "get", word, "front", "-n", "web", "-c", "cluster2", "-o", "name").Succeeds(t, "cluster2 deployment.apps/front\n")
	}
	none := h.Run(t, "", "get", "pods", "-n", "empty", "-c", "cluster1", "-l", "app=x")
	none.Succeeds(t)
	if !strings.Contains(none.ErrOut, `No pods with app=x in namespace "empty"`) {
		t.Errorf("nothing there: %+v", none)
	}
}

// CA-02: a List in YAML or JSON says which cluster each object is of, and keeps large numbers.
func TestGetResourcesAsList(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	for _, format := range []string{"json", "yaml"} {
		got := h.Run(t, "", "get", "pods", "--clusters", "cluster1,cluster2", "-o", format)
		got.Succeeds(t, "1152921504606846976")
		content, err := yaml.YAMLToJSON([]byte(got.Out))
		if err != nil {
			t.Fatal(err)
		}
		list := &unstructured.UnstructuredList{}
		if err := json.Unmarshal(content, list); err != nil {
			t.Fatalf("%v:\n%s", err, got.Out)
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
		empty := h.Run(t, "", "get", "pods", "--clusters", "cluster1", "-n", "empty", "-o", format)
		if content, err := yaml.YAMLToJSON([]byte(empty.Out)); err != nil || !strings.Contains(string(content), `"items":[]`) {
			t.Errorf("%s without objects: %s, %v", format, content, err)
		}
	}
}

// CA-02: a cluster that says itself that it is unavailable is connected, and a group that does not answer may have what is looked for.
func TestGetResourcesOfUnavailableAPIs(t *testing.T) {
	t.Parallel()
	const notReady = "the API server starts"
	refuse := fakehub.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, notReady)
	plain := func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
	}
	for name, test := range map[string]struct {
		path     string
		answer   http.HandlerFunc
		resource string
		want     string
	}{
		"the API server": {"/api/v1", refuse, "pods", "cluster1: unavailable: " + notReady},
		"a resource":     {"/api/v1/namespaces/default/pods", refuse, "pods", "cluster1: unavailable: " + notReady},
		"one behind it":  {"/apis/apps/v1/namespaces/default/deployments", plain, "deploy", "cluster1: unavailable: the server is currently unable"},
		"all groups":     {"/apis", refuse, "deploy", "cluster1: unavailable: the server is currently unable"},
		"the group":      {"/apis/apps/v1", plain, "deploy", `serves no "deploy", unless an API group does that does not answer: apps/v1`},
		"another group":  {"/apis/apps/v1", plain, "things", `serves no "things", unless an API group does that does not answer: apps/v1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHubWithPods(t)
			api := podsOf("a")
			api.Handlers[test.path] = test.answer
			h.Connect("cluster1", api)
			got := h.Run(t, "", "get", test.resource, "--clusters", "cluster1")
			got.Fails(t, test.want)
			if strings.Contains(got.ErrOut, "not connected") {
				t.Errorf("it says\n%s", got.ErrOut)
			}
		})
	}
}

// CA-02: what a cluster calls its API groups does nothing to the terminal of who reads its resources.
func TestGetResourcesOfUnprintableGroups(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	api := podsOf("a")
	api.Handlers["/apis"] = fakehub.JSON(`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"a\u001b[2J\u202e.io",
		"versions":[{"groupVersion":"a\u001b[2J\u202e.io/v1","version":"v1"}]}]}`)
	path := (&url.URL{Path: "/apis/a\x1b[2J\u202e.io/v1"}).String() // as the client for discovery requests it
	api.Handlers[path] = fakehub.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no endpoints")
	h.Connect("cluster1", api)
	got := h.Run(t, "", "get", "things", "--clusters", "cluster1")
	got.Fails(t, `serves no "things", unless an API group does that does not answer: a [2J .io/v1`)
	if strings.ContainsAny(got.Out+got.ErrOut, "\x1b\u202e") {
		t.Errorf("%q", got.Out+got.ErrOut)
	}
}

// CA-02: clusters that do not answer are listed, with the reason of each, and the others are printed.
func TestGetResourcesPartly(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	for _, name := range []string{"slow", "forbidden", "noright", "bare"} {
		h.Put(t, clitest.ClustersPath+"/"+name, clitest.AcceptedCluster(name))
	}
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	slow, forbidden, bare := podsOf(), podsOf(), podsOf()
	slow.Handlers["/api/v1/namespaces/default/pods"] = func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler) // no answer, not an empty one
		}
	}
	forbidden.Handlers["/api/v1/namespaces/default/pods"] = fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		`pods is forbidden: User "alice" cannot list resource "pods"`)
	bare.Collections = nil
	h.Connect("slow", slow)
	h.Connect("forbidden", forbidden)
	h.Connect("noright", fakehub.RefuseCluster(http.StatusForbidden, metav1.StatusReasonForbidden, "noright"))
	h.Connect("bare", bare)
	got := h.Run(t, "", "get", "pods", "--clusters", "forbidden,cluster1,noright,bare,idle,gone,cluster2")
	got.Fails(t, "5 of 7 clusters could not be read:", `forbidden: forbidden: pods is forbidden: User "alice"`,
		"noright: forbidden: managedclusters", `bare: no such resource: it serves no "pods"`, "idle: not connected: cluster idle has no tunnel",
		`gone: the hub has no cluster "gone"`, "capstan proxy health")
	h.Run(t, "", "get", "pods", "--clusters", "slow", "--timeout", "1").Fails(t, "slow: time-out: no answer in 1s", "--timeout")
	for _, row := range []string{"cluster1   a ", "cluster1   long-name ", "cluster2   c "} {
		if !strings.Contains(got.Out, row) {
			t.Errorf("%q is missing in:\n%s", row, got.Out)
		}
	}
	h.Run(t, "", "get", "pods", "c", "--clusters", "cluster1,cluster2").Fails(t, "1 of 2 clusters", `cluster1: pods "c" not found`)
	h.CloseClientConnections()
	h.Close()
	down := h.Run(t, "", "get", "pods", "--clusters", "cluster1,cluster2")
	down.Fails(t, "find out how clusters are reached: nothing answers at")
	if strings.Count(down.ErrOut, "nothing answers") != 1 {
		t.Errorf("one reason several times:\n%s", down.ErrOut)
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
	got := h.Run(t, "", "get", "pods", "--clusters", "cluster1,cluster2,idle")
	got.Succeeds(t, "CLUSTER    NAME        READY   RESTARTS   AGE\n", "cluster1   a           -       1234567    5d\n",
		"cluster2   b [31m      true    -          1d\n", "idle       d           -       -          ")
}

// CA-02: a cluster that does not answer keeps nobody waiting for what the others have answered, whichever was named first.
func TestGetResourcesAsTheyAnswer(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "name", "json"} {
		h := newHubWithPods(t)
		slow, release := podsOf("late"), make(chan struct{})
		answer := *slow
		slow.Handlers["/api/v1/namespaces/default/pods"] = func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
				answer.Handlers = nil
				answer.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		}
		h.Connect("cluster1", slow)
		r := start(t, h, "get", "pods", "--clusters", "cluster1,cluster2", "--timeout", "60", "-o", format)
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
	got := h.Run(t, "", "get", "pods", "--clusters", "cluster1,cluster2", "-o", "name")
	lines := strings.Split(strings.TrimSpace(got.Out), "\n")
	if got.Code != 0 || len(lines) != 1204 || lines[0] != "cluster1 pod/pod-0000" || lines[1202] != "cluster1 pod/pod-1202" || lines[1203] != "cluster2 pod/c" {
		t.Errorf("%d lines, from %q to %q: %s", len(lines), lines[0], lines[len(lines)-1], got.ErrOut)
	}
}

// CA-02: to read from the clusters of a placement takes no right to see whether its decisions count.
func TestGetResourcesOfUncheckedPlacement(t *testing.T) {
	t.Parallel()
	for _, path := range []string{clitest.SetsPath + "/global", strings.Replace(clitest.BindingsPath, "team-a", "default", 1)} {
		h := newHubWithPods(t)
		h.PutPlacement(t, "default", "web", "cluster2")
		h.Handle("GET "+path, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not read "+path))
		got := h.Run(t, "", "get", "pods", "--placement", "default/web", "-o", "name")
		const warning = "Warning: placement default/web: whether its decisions count was not checked for cluster2: that takes the rights to list"
		if got.Code != 0 || got.Out != "cluster2 pod/c\n" || !strings.Contains(got.ErrOut, warning) {
			t.Errorf("without %s: %+v", path, got)
		}
	}
}

// CA-02: the clusters may be those of a placement or of a cluster set.
func TestGetResourcesOfPlacementAndSet(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	h.PutPlacement(t, "default", "web", "cluster2")
	h.PutPlacement(t, "default", "none")
	if got := h.Run(t, "", "get", "pods", "--placement", "default/web", "-o", "name"); got.Out != "cluster2 pod/c\n" {
		t.Errorf("%+v", got)
	}
	h.Run(t, "", "get", "pods", "--placement", "default/none").Fails(t, "selects no clusters", "capstan explain placement")
	h.Run(t, "", "get", "pods", "--placement", "web").Fails(t, "--placement", "default/web")

	member := clitest.AcceptedCluster("cluster1")
	member.Labels = map[string]string{"cluster.open-cluster-management.io/clusterset": "prod"}
	h.Put(t, clitest.ClustersPath+"/cluster1", member)
	h.PutSet(t, "prod")
	h.PutSet(t, "empty")
	if got := h.Run(t, "", "get", "pods", "--clusterset", "prod", "-o", "name"); got.Out != "cluster1 pod/a\ncluster1 pod/long-name\n" {
		t.Errorf("%+v", got)
	}
	h.Run(t, "", "get", "pods", "--clusterset", "empty").Fails(t, "has no clusters", "capstan clusterset set empty")
	h.Run(t, "", "get", "pods", "--clusterset", "gone").Fails(t, `"gone" not found`)
}

// CA-02: the clusters may be all that the hub has accepted, of which those that do not answer are listed.
func TestGetResourcesOfAllClusters(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	waiting := clitest.AcceptedCluster("waiting")
	waiting.Spec.HubAcceptsClient = false
	h.Put(t, clitest.ClustersPath+"/waiting", waiting)
	got := h.Run(t, "", "get", "pods", "--all-clusters", "-o", "name")
	got.Fails(t, "1 of 3 clusters could not be read:", "idle: not connected")
	if got.Out != "cluster1 pod/a\ncluster1 pod/long-name\ncluster2 pod/c\n" || strings.Contains(got.ErrOut, "waiting") {
		t.Errorf("%+v", got)
	}
	h.Run(t, "", "get", "pods", "--all-clusters", "--clusterset", "prod").Fails(t, "all-clusters", "clusterset")
	none := clitest.NewHub(t)
	none.Run(t, "", "get", "pods", "--all-clusters").Fails(t, "the hub has accepted no clusters", "capstan accept")
}

// CA-02
func TestGetResourcesBadCommandLine(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
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
		h.Run(t, "", strings.Fields(command)...).Fails(t, says...)
	}
	h.Run(t, "", "get").Succeeds(t, "Available Commands", "--clusterset")
}

// CA-02: with --watch, rows of what changes follow, of any cluster, also of one that was away from the beginning, until nothing is left to
// watch.
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
	tries := make(chan struct{}, 100)
	noTunnel := fakehub.RefuseCluster(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "idle")
	h.Connect("idle", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tries <- struct{}{}
		noTunnel(w, r)
	}))
	r := start(t, h, "get", "pods", "--clusters", "cluster1,cluster2,idle", "--watch")
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
	for range 3 { // at first, to watch, and again after it has said that it could not
		<-tries
	}
	back := podsOf("first")
	events["idle"] = make(chan string)
	back.Watch = map[string]chan string{path: events["idle"]}
	h.Connect("idle", back)
	expect("idle", "first", "1234567", "5d")
	events["idle"] <- row("ADDED", "second")
	expect("idle", "second", "1", "0s")
	events["idle"] <- `{"type":"ADDED","object":"nonsense"}`
	events["cluster1"] <- `{"type":"ERROR","object":{"kind":"Status","code":403,"reason":"Forbidden","message":"not you"}}`
	events["cluster2"] <- `{"type":"ADDED","object":"nonsense"}`
	if code := <-r.code; code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, words := range []string{"1 of 3 clusters could not be read", "idle: not watched for now, which is tried again: not connected: ",
		"idle: watched again", "idle: no longer watched: read the answer: ", "cluster1: no longer watched: forbidden: not you",
		"cluster2: no longer watched: read the answer: ", "no cluster is watched any more"} {
		if !strings.Contains(r.errOut.String(), words) {
			t.Errorf("%q is missing in %s", words, r.errOut)
		}
	}
	h.Run(t, "", "get", "pods", "--clusters", "cluster1", "-w", "-o", "json").Fails(t, "--watch: shows rows of tables")
}

// CA-02: a watch does not begin if no cluster serves the resource, also where an API group does not answer, which may never do.
func TestGetResourcesWatchesWhatIsServed(t *testing.T) {
	t.Parallel()
	broken := fakehub.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no endpoints")
	for name, test := range map[string]struct {
		answer http.HandlerFunc // of an API group
		want   string
	}{
		"all groups answer":       {nil, `cluster1, cluster2: no such resource: it serves no "podz"`},
		"a group does not answer": {broken, `cluster1: no such resource: it serves no "podz", unless an API group does that does not answer`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHubWithPods(t)
			api := podsOf("a")
			api.Handlers["/apis/apps/v1"] = test.answer
			h.Connect("cluster1", api)
			h.Run(t, "", "get", "podz", "--clusters", "cluster1,cluster2", "--watch").Fails(t, "2 of 2 clusters could not be read", test.want)
		})
	}
}

// CA-02: of a cluster that fails after its first page, all rows are listed before it is watched.
func TestGetResourcesWatchListsTheRest(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	api := podsOf("a")
	page := func(name, metadata string) http.HandlerFunc {
		return fakehub.JSON(`{"kind":"Table","metadata":{"resourceVersion":"7"` + metadata + `},"columnDefinitions":[{"name":"Name"}],
			"rows":[{"cells":["` + name + `"]}]}`)
	}
	var failed atomic.Bool
	api.Handlers["/api/v1/namespaces/default/pods"] = func(w http.ResponseWriter, r *http.Request) {
		switch query := r.URL.Query(); {
		case query.Has("watch"):
			fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "not you")(w, r) // which ends the command
		case query.Get("continue") == "":
			page("a", `,"continue":"more"`)(w, r)
		case failed.CompareAndSwap(false, true):
			fakehub.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "not now")(w, r)
		default:
			page("b", "")(w, r)
		}
	}
	h.Connect("cluster1", api)
	r := start(t, h, "get", "pods", "--clusters", "cluster1", "--watch")
	var rows []string
	for r.output.Scan() {
		rows = append(rows, strings.Fields(r.output.Text())[1])
	}
	if code := <-r.code; code != 1 || strings.Join(rows, " ") != "NAME a a b" {
		t.Errorf("exit code %d, the rows are those of %v", code, rows)
	}
	for _, words := range []string{"1 of 1 clusters could not be read", "cluster1: what has changed in between is not known any more",
		"cluster1: no longer watched: forbidden: not you"} {
		if !strings.Contains(r.errOut.String(), words) {
			t.Errorf("%q is missing in %s", words, r.errOut)
		}
	}
}

// CA-02: the cluster chooses by labels and fields what it lists and what is watched.
func TestGetResourcesBySelectors(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	asked := make(chan string, 10)
	api, answer := podsOf("a"), podsOf("a")
	api.Handlers["/api/v1/namespaces/default/pods"] = func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		selected := query.Get("labelSelector") + " and " + query.Get("fieldSelector")
		if query.Has("watch") {
			asked <- "watch " + selected
			fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "not you")(w, r) // which ends the command
			return
		}
		asked <- "list " + selected
		answer.ServeHTTP(w, r)
	}
	h.Connect("cluster1", api)
	h.Run(t, "", "get", "pods", "--clusters", "cluster1", "-l", "app=web,tier!=cache", "--field-selector", "status.phase=Running",
		"--watch").Fails(t, "no cluster is watched any more")
	close(asked)
	var requests []string
	for request := range asked {
		requests = append(requests, request)
	}
	const selected = " app=web,tier!=cache and status.phase=Running"
	if !slices.Equal(requests, []string{"list" + selected, "watch" + selected}) {
		t.Errorf("the cluster is asked to %q", requests)
	}
}

// CA-02: a watch goes on where it ended when a cluster is back that was away, which is told once; rows that are not known to follow on the
// last ones are all of them.
func TestGetResourcesWatchesAgain(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	const path = "/api/v1/namespaces/default/pods"
	event := func(name, version string) string {
		return fmt.Sprintf(`{"type":"ADDED","object":{"kind":"Table","metadata":{"resourceVersion":%q},"rows":[{"cells":[%q,1,"0s","n"]}]}}`,
			version, name)
	}
	send := func(events ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for _, event := range events {
				fmt.Fprintln(w, event)
			}
			w.(http.Flusher).Flush()
		}
	}
	lose := func(w http.ResponseWriter, r *http.Request) {
		send(event("lost", "7"))(w, r)
		panic(http.ErrAbortHandler) // the connection
	}
	refuse := func(code int, reason metav1.StatusReason) http.HandlerFunc {
		return fakehub.Refuse(code, reason, "no tunnel")
	}
	unreached := fakehub.RefuseCluster(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "cluster1")
	watches := []struct {
		version string // from which it is to go on
		answer  http.HandlerFunc
	}{
		{"1", lose},
		{"7", unreached},
		{"7", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"7", refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)},
		{"7", send(event("back", "8"), `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}`)},
		{"1", send(event("relisted", "9"))},
		{"9", send()},
		{"9", send()},
		{"9", send(event("last", "10"))},
		{"10", refuse(http.StatusForbidden, metav1.StatusReasonForbidden)},
	}
	var made atomic.Int32
	api, answer := podsOf("a"), podsOf("a")
	api.Handlers[path] = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			answer.ServeHTTP(w, r)
			return
		}
		watch := watches[min(int(made.Add(1)), len(watches))-1]
		if got := r.URL.Query().Get("resourceVersion"); got != watch.version {
			t.Errorf("watch %d begins at %q, want %q", made.Load(), got, watch.version)
		}
		watch.answer(w, r)
	}
	h.Connect("cluster1", api)
	r := start(t, h, "get", "pods", "--clusters", "cluster1", "--watch")
	var rows []string
	for r.output.Scan() {
		rows = append(rows, strings.Fields(r.output.Text())[1])
	}
	if code := <-r.code; code != 1 {
		t.Errorf("exit code %d", code)
	}
	if want := "NAME a lost back a relisted last"; strings.Join(rows, " ") != want {
		t.Errorf("the rows are those of %v, want %s", rows, want)
	}
	const away = "cluster1: not watched for now, which is tried again: "
	want := []string{away + `not connected: managedclusters "cluster1": ServiceUnavailable`, "cluster1: watched again",
		"cluster1: what has changed in between is not known any more: all its rows follow",
		away + "the cluster ends watches before their first event", "cluster1: watched again", "cluster1: no longer watched: forbidden: no tunnel"}
	if got := strings.Split(r.errOut.String(), "\n"); !slices.Equal(got[:min(len(got), len(want))], want) {
		t.Errorf("it says\n%s", r.errOut)
	}
}

// CA-02: an object whose version is too old for a watch is listed, which has the version of now. A hub that starts refuses for a moment.
func TestGetResourcesWatchesANameAgain(t *testing.T) {
	t.Parallel()
	h := newHubWithPods(t)
	const path = "/api/v1/namespaces/default/pods"
	status := func(code int, reason metav1.StatusReason) http.HandlerFunc {
		return fakehub.Refuse(code, reason, "not now")
	}
	watches := []http.HandlerFunc{
		status(http.StatusGone, metav1.StatusReasonExpired),
		status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
		status(http.StatusForbidden, metav1.StatusReasonForbidden),
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintln(w, `{"type":"ADDED","object":{"kind":"Table","metadata":{"resourceVersion":"9"},"rows":[{"cells":["seen",1,"0s","n"]}]}}`)
		},
		status(http.StatusForbidden, metav1.StatusReasonForbidden),
	}
	var made, listed atomic.Int32
	api, answer := podsOf("a"), podsOf("a")
	api.Handlers[path+"/a"] = answer.ServeHTTP
	api.Handlers[path] = func(w http.ResponseWriter, r *http.Request) {
		if selected := r.URL.Query().Get("fieldSelector"); selected != "metadata.name=a" {
			t.Errorf("%s selects %q", r.URL, selected)
		}
		if r.URL.Query().Get("watch") == "" {
			listed.Add(1)
			answer.ServeHTTP(w, r)
			return
		}
		watches[min(int(made.Add(1)), len(watches))-1](w, r)
	}
	h.Connect("cluster1", api)
	r := start(t, h, "get", "pods", "a", "--clusters", "cluster1", "--watch")
	var rows []string
	for r.output.Scan() {
		rows = append(rows, strings.Fields(r.output.Text())[1])
	}
	<-r.code
	if want := "NAME a a seen"; strings.Join(rows, " ") != want {
		t.Errorf("the rows are those of %v, want %s\n%s", rows, want, r.errOut)
	}
	if listed.Load() != 1 {
		t.Errorf("listed %d times", listed.Load())
	}
}

// CA-02: a cluster that answers without an end is listed with those that fail, wherever it does so, and keeps nobody from the others.
func TestGetResourcesOfAClusterWithoutAnEnd(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/api/v1", "/api/v1/namespaces/default/pods"} {
		h := newHubWithPods(t)
		endless := podsOf("a")
		endless.Handlers[path] = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1099511627776")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
		h.Connect("cluster1", endless)
		got := h.Run(t, "", "get", "pods", "--clusters", "cluster1,cluster2", "-o", "name")
		got.Fails(t, "1 of 2 clusters could not be read:", "cluster1: the response is larger than 256 MiB", "--namespace")
		if got.Out != "cluster2 pod/c\n" {
			t.Errorf("%s: %s", path, got.Out)
		}
	}
}
