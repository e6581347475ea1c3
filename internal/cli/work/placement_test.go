package work_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// CA-25
func TestGetPlacements(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	if got := h.Run(t, "", "get", "placements"); got.Code != 0 || !strings.Contains(got.ErrOut, "capstan create placement") {
		t.Errorf("without any: %+v", got)
	}
	h.PutPlacement(t, "team-a", "web", "cluster1", "cluster2")
	h.PutPlacement(t, "team-b", "db", "cluster3")
	h.Run(t, "", "get", "placements").Succeeds(t, "Placements: 2", "Namespace: team-a", "web-decision-1: cluster1,cluster2",
		"db-decision-1: cluster3")
	h.Run(t, "", "get", "placements", "-o", "table").Succeeds(t, "NAME   STATUS   REASON",
		"web    True     AllDecisionsScheduled   cluster1,cluster2   team-a")
	if got := h.Run(t, "", "get", "placement", "-n", "team-b"); strings.Contains(got.Out, "web") || !strings.Contains(got.Out, "db") {
		t.Errorf("of team-b: %s", got.Out)
	}
	var one clusterv1beta1.Placement
	if err := json.Unmarshal([]byte(h.Run(t, "", "get", "placements", "web", "-n", "team-a", "-o", "json").Out), &one); err != nil {
		t.Fatal(err)
	}
	if one.Name != "web" || one.Kind != "Placement" || len(one.ManagedFields) > 0 {
		t.Errorf("one placement as JSON: %+v", one)
	}
	h.Run(t, "", "get", "placements", "db", "-o", "yaml").Succeeds(t, "kind: PlacementList", "namespace: team-b")
	h.Run(t, "", "get", "placements", "gone").Fails(t, `"gone"`, "capstan get placements")
	h.Run(t, "", "get", "placements", "gone", "-n", "team-a").Fails(t, `"gone" not found`, "capstan get placements")
	h.Run(t, "", "get", "placements", "-n", "Team").Fails(t, `--namespace: "Team"`)
}

// CA-30
func TestCreatePlacement(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutSet(t, "prod")
	create := []string{"create", "placement", "web", "-n", "team-a", "--clustersets", "prod", "--count", "2",
		"--label-selectors", `"region=eu,env!=test"`, "--label-selectors", "tier in (gold,silver)",
		"--prioritizers", "BuiltIn:ResourceAllocatableCPU:3,AddOn:usage:free:-1"}
	h.Run(t, "", create...).Fails(t, "cluster set prod is not bound to namespace team-a", "capstan clusterset bind prod --namespace team-a")
	h.Run(t, "", "clusterset", "bind", "prod", "-n", "team-a").Succeeds(t)
	rendered := h.Run(t, "", append(create, "--dry-run")...)
	rendered.Succeeds(t, "kind: Placement", "numberOfClusters: 2")
	if h.Has(clitest.PlacementsPath + "/web") {
		t.Error("the dry run created it")
	}
	h.Run(t, "", create...).Succeeds(t, "Placement 'web' has been created in 'team-a' namespace")
	var got clusterv1beta1.Placement
	h.Get(t, clitest.PlacementsPath+"/web", &got)
	content, err := json.Marshal(got.Spec)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"clusterSets":["prod"],"numberOfClusters":2,"predicates":[` +
		`{"requiredClusterSelector":{"labelSelector":{"matchExpressions":[{"key":"env","operator":"NotIn","values":["test"]},{"key":"region","operator":"In","values":["eu"]}]}}},` +
		`{"requiredClusterSelector":{"labelSelector":{"matchExpressions":[{"key":"tier","operator":"In","values":["gold","silver"]}]}}}],` +
		`"prioritizerPolicy":{"configurations":[{"scoreCoordinate":{"type":"BuiltIn","builtIn":"ResourceAllocatableCPU"},"weight":3},` +
		`{"scoreCoordinate":{"type":"AddOn","addOn":{"resourceName":"usage","scoreName":"free"}},"weight":-1}]}}`
	if string(content) != want {
		t.Errorf("spec\n%s, want\n%s", content, want)
	}
	h.Run(t, "", "create", "placement", "web", "-n", "team-a").Fails(t, "web in namespace team-a already exists", "--overwrite")
	h.Run(t, "", "create", "placement", "web", "-n", "team-a", "--overwrite").Succeeds(t,
		"Placement 'web' has been updated in 'team-a' namespace")
	var after clusterv1beta1.Placement // all clusters now
	h.Get(t, clitest.PlacementsPath+"/web", &after)
	if after.Spec.NumberOfClusters != nil || len(after.Spec.Predicates) > 0 {
		t.Errorf("after --overwrite: %+v", after.Spec)
	}
	h.Handle("POST "+strings.Replace(clitest.PlacementsPath, "team-a", "gone", 1), fakehub.Refuse(http.StatusNotFound,
		metav1.StatusReasonNotFound, `namespaces "gone" not found`))
	h.Run(t, "", "create", "placement", "web", "-n", "gone").Fails(t, "--namespace", "kubectl create namespace gone")
	for flags, says := range map[string]string{
		"--count -1":                             "--count: -1",
		"--label-selectors =":                    "region=eu",
		"--label-selectors a=1,":                 "no labels",
		`--label-selectors "a=1,b=2`:             "region=eu",
		"--label-selectors nodes>3":              "the operator gt is not among",
		"--prioritizers Balance:1":               "neither BuiltIn:NAME:WEIGHT nor",
		"--prioritizers BuiltIn:Balence:1":       "there is no built-in prioritizer \"Balence\"; use one of Balance,",
		"--prioritizers BuiltIn:Balance:11":      "between -10 and 10",
		"--prioritizers AddOn:usage:1":           "AddOn:RESOURCE:SCORE:WEIGHT",
		"--prioritizers BuiltIn:Balance:mostly":  "between -10 and 10",
		"--namespace Team":                       `--namespace: "Team"`,
		"--clustersets nothing --namespace gone": "capstan clusterset bind nothing --namespace gone",
	} {
		h.Run(t, "", append([]string{"create", "placement", "new"}, strings.Fields(flags)...)...).Fails(t, says)
	}
}

// CA-30: commas separate selectors, of which one has to match, as with clusteradm; double quotes and parentheses enclose commas.
func TestCreatePlacementLabelSelectors(t *testing.T) {
	t.Parallel()
	type requirements [][]metav1.LabelSelectorRequirement
	in := func(key string, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	for name, test := range map[string]struct {
		given []string
		want  requirements
	}{
		"one":          {[]string{"a=1"}, requirements{{in("a", "1")}}},
		"commas":       {[]string{"a=1,b=2"}, requirements{{in("a", "1")}, {in("b", "2")}}},
		"repeated":     {[]string{"a=1", "b=2,c=3"}, requirements{{in("a", "1")}, {in("b", "2")}, {in("c", "3")}}},
		"quotes":       {[]string{`"a=1,b=2",c=3`}, requirements{{in("a", "1"), in("b", "2")}, {in("c", "3")}}},
		"values":       {[]string{"a in (x,y),b=2"}, requirements{{in("a", "x", "y")}, {in("b", "2")}}},
		"quotes, both": {[]string{`"a in (x,y),b=2"`}, requirements{{in("a", "x", "y"), in("b", "2")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"create", "placement", "web", "-n", "team-a"}
			for _, selectors := range test.given {
				args = append(args, "--label-selectors", selectors)
			}
			h := clitest.NewHub(t)
			h.Run(t, "", args...).Succeeds(t)
			var created clusterv1beta1.Placement
			h.Get(t, clitest.PlacementsPath+"/web", &created)
			var got requirements
			for _, predicate := range created.Spec.Predicates {
				got = append(got, predicate.RequiredClusterSelector.LabelSelector.MatchExpressions)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("selects %+v, want %+v", got, test.want)
			}
		})
	}
}

// aReport is one of a placement that selected the better of two candidates.
const aReport = `{
  "placement": {"metadata": {"namespace": "team-a", "name": "web"}, "spec": {}},
  "filteredPipelineResults": [{"name": "Predicate", "filteredClusters": ["a", "b"]}],
  "prioritizeResults": [{"name": "Balance", "weight": 1, "scores": {"a": -100, "b": 100}}, {"name": "Steady", "weight": 2, "scores": {"a": 0, "b": 50}}],
  "aggregatedScores": [{"clusterName": "b", "score": 200}, {"clusterName": "a", "score": -100}],
  "funnel": {"fleet": 9, "inClusterSets": 3, "matched": 2, "tolerated": 2, "selected": 1},
  "conditions": [{"type": "PlacementSatisfied", "status": "True", "message": "All cluster decisions scheduled"}],
  "clusters": [{"clusterName": "a", "selected": false, "reason": "it ranks 2 of 2"}, {"clusterName": "b", "selected": true, "reason": "score 200"},
    {"clusterName": "us", "selected": false, "reason": "its labels do not match"}]
}`

// PL-23 P10
func TestExplainPlacement(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Handle("GET "+report.Path+"team-a/web", fakehub.JSON(aReport))
	explain := []string{"explain", "placement", "web", "-n", "team-a"}
	h.Run(t, "", explain...).Succeeds(t, "Placement team-a/web selects 1 cluster: all cluster decisions scheduled\n",
		"in the fleet                 9\n",
		"CLUSTER   SELECTED   SCORE   1 × BALANCE   2 × STEADY\nb         yes        200     100           50\na         no         -100    -100          0\n",
		"NOT SELECTED   BECAUSE\na              it ranks 2 of 2\nus             its labels do not match\n")
	h.Run(t, "", append(explain, "--cluster", "us")...).Succeeds(t,
		"Cluster us is not selected by placement team-a/web: its labels do not match")
	h.Run(t, "", append(explain, "-c", "b")...).Succeeds(t, "Cluster b is selected by placement team-a/web: score 200",
		"yes        200     100           50")
	h.Run(t, "", append(explain, "-c", "b", "-o", "json")...).Succeeds(t, `"selected": true`)
	h.Run(t, "", append(explain, "-c", "gone")...).Fails(t, `cluster "gone" does not exist`, "capstan get clusters")
	h.Handle("GET "+report.Path+"team-a/stranger", fakehub.JSON(strings.Replace(aReport, `"fleet": 9, `, "", 1)))
	if out := h.Run(t, "", "explain", "placement", "stranger", "-n", "team-a").Out; strings.Contains(out, "in the fleet") ||
		!strings.Contains(out, "in the cluster sets          3\n") {
		t.Errorf("of a fleet whose size is not told: %s", out)
	}
	var whole report.Report
	if err := json.Unmarshal([]byte(h.Run(t, "", append(explain, "-o", "json")...).Out), &whole); err != nil || whole.Funnel.Fleet != 9 {
		t.Errorf("as JSON: %+v, %v", whole, err)
	}
	h.Handle("GET "+report.Path+"team-a/broken",
		fakehub.JSON(`{"placement":{"metadata":{"namespace":"team-a","name":"broken"}},"error":"Predicate:spec is wrong","funnel":{"selected":3},
		"clusters":[{"clusterName":"a","selected":true},{"clusterName":"b","selected":false}]}`))
	broken := []string{"explain", "placement", "broken", "-n", "team-a"}
	const wrong = "makes no sense, and keeps the 3 clusters it has: Predicate:spec is wrong\n"
	h.Run(t, "", broken...).Succeeds(t, wrong)
	h.Run(t, "", append(broken, "-c", "a")...).Succeeds(t, wrong+"Cluster a is among those it keeps.\n")
	h.Run(t, "", append(broken, "-c", "b")...).Succeeds(t, wrong+"Cluster b is not among those it keeps.\n")
	h.Handle("GET "+report.Path+"team-a/off", fakehub.JSON(strings.Replace(aReport, `"funnel"`, `"disabled": true, "funnel"`, 1)))
	h.Run(t, "", "explain", "placement", "off", "-n", "team-a", "-c", "us").Succeeds(t,
		"experimental-scheduling-disable of placement team-a/web keeps its decisions as they are: the hub makes none.",
		"Without the annotation, cluster us would not be selected: its labels do not match")

	expired := strings.Replace(aReport, `{"a": 0, "b": 50}`, `{"a": 0, "b": 50}, "expired": ["a"]`, 1) // PL-12
	h.Handle("GET "+report.Path+"team-a/late", fakehub.JSON(expired))
	h.Run(t, "", "explain", "placement", "late", "-n", "team-a").Succeeds(t, "b         yes        200     100           50\n",
		"a         no         -100    -100          0 (expired)\n")

	h.Handle("GET "+report.Path+"team-a/gone", fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, `placements "gone" not found`))
	h.Run(t, "", "explain", "placement", "gone", "-n", "team-a").Fails(t, `"gone" not found`)
	h.Run(t, "", "explain", "placement", "team-a/web").Fails(t, "web --namespace team-a")
	h.Handle("GET "+report.Path+"default/secret", fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		"you may not get placements"))
	h.Run(t, "", "explain", "placement", "secret").Fails(t, "you may not get placements", "lacks this permission")
	h.Handle("GET "+report.Path+"team-a/elsewhere", http.NotFound)
	h.Run(t, "", "explain", "placement", "elsewhere", "-n", "team-a").Fails(t, "does not explain placements",
		"--debug-server https://localhost:9443", "port-forward service/cluster-manager-placement 9443", `{.data.ca-bundle\.crt}`,
		"--debug-server-name cluster-manager-placement.open-cluster-management-hub.svc", "capstan get placements -o yaml")
	h.Run(t, "", "explain", "placement").Fails(t, "0 names given")
	h.Run(t, "", "explain", "placement", "web", "-c", "C_").Fails(t, `--cluster: "C_"`)
}

// PL-23: a hub in an existing cluster explains at another server, which gets the credential of the user if it is who it should be.
func TestExplainAtDebugServer(t *testing.T) {
	t.Parallel()
	h, server := clitest.NewHub(t), clitest.NewHub(t)
	server.Handle("GET "+report.Path+"default/web", fakehub.JSON(aReport))
	server.Handle("POST "+report.Path, fakehub.JSON(aReport))
	explain := []string{"explain", "placement", "web", "--debug-server", server.URL}
	trusting := slices.Concat(explain, []string{"--debug-server-ca", clitest.WriteCA(t, server)})
	h.Run(t, "", trusting...).Succeeds(t, "Placement team-a/web selects 1 cluster")
	what := "{apiVersion: cluster.open-cluster-management.io/v1beta1, kind: Placement}"
	h.Run(t, what, append(trusting, "--what-if", "-")...).Succeeds(t, "Placement team-a/web selects 1 cluster")
	if sent := h.Requests("GET"); len(sent) > 0 {
		t.Errorf("the API server was asked, too: %+v", sent)
	}
	requested := server.Requests("GET")
	if len(requested) != 1 || requested[0].Authorization == "" {
		t.Errorf("it was asked %+v", requested)
	}
	h.Run(t, "", explain...).Fails(t, "--debug-server-ca does not trust", "--placement-debug-cert-dir")
	h.Run(t, "", append(trusting, "--debug-server", "http://localhost:9443")...).Fails(t, `--debug-server: "http://localhost:9443"`,
		"https://localhost:9443")
	h.Run(t, "", append(trusting, "--debug-server", "https://127.0.0.1:1")...).Fails(t, "nothing answers at https://127.0.0.1:1",
		"kubectl port-forward")
	h.Run(t, "", append(explain, "--debug-server-ca", "placement_test.go")...).Fails(t, "--debug-server-ca: placement_test.go", "PEM certificates")
	h.Run(t, "", "explain", "placement", "web", "--debug-server-ca", "ca.crt").Fails(t, "--debug-server https://localhost:9443")
	h.Run(t, "", "explain", "placement", "web", "--debug-server-name", "x").Fails(t, "--debug-server https://localhost:9443")
	if got := server.Requests("GET"); len(got) != len(requested) {
		t.Errorf("requests were sent all the same: %+v", got)
	}
}

// PL-23: the debug server of a hub that is not of Capstan says less.
func TestExplainAtAnotherDebugServer(t *testing.T) {
	t.Parallel()
	for answer, shown := range map[string]string{
		`{"placement":{"metadata":{"namespace":"default","name":"web"}},
			"filteredPipelineResults":[{"name":"Predicate","filteredClusters":["a","b"]}],
			"prioritizeResults":[{"name":"Balance","weight":1,"scores":{"a":100,"b":-100}}],
			"aggregatedScores":[{"clusterName":"a","score":100}]}`: `"clusterName": "a"`,
		`{"error":"no such placement"}`: `"error": "no such placement"`,
		`{}`:                            `{}`,
		`{"funnel":{"selected":1}}`:     `"selected": 1`,
	} {
		h, server := clitest.NewHub(t), clitest.NewHub(t)
		server.Handle("GET "+report.Path+"default/web", fakehub.JSON(answer))
		explain := []string{"explain", "placement", "web", "--debug-server", server.URL, "--debug-server-ca", clitest.WriteCA(t, server)}
		h.Run(t, "", explain...).Fails(t, "are not of Capstan", "-o yaml")
		h.Run(t, "", append(explain, "--cluster", "a")...).Fails(t, "are not of Capstan", "-o yaml")
		h.Run(t, "", append(explain, "--cluster", "a", "-o", "yaml")...).Fails(t, "are not of Capstan", "-o yaml")
		h.Run(t, "", append(explain, "-o", "json")...).Succeeds(t, shown)
	}
}

// PL-23: what leads to the server on this machine is none of the names in its certificate, as with "kubectl port-forward".
func TestExplainThroughPortForward(t *testing.T) {
	t.Parallel()
	h, server := clitest.NewHub(t), clitest.NewHub(t)
	server.Handle("GET "+report.Path+"default/web", fakehub.JSON(aReport))
	forwarded := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	explain := []string{"explain", "placement", "web", "--debug-server", forwarded, "--debug-server-ca", clitest.WriteCA(t, server)}
	h.Run(t, "", explain...).Fails(t, "the certificate of "+forwarded+" is for another host",
		"--debug-server-name", "cluster-manager-placement.open-cluster-management-hub.svc")
	h.Run(t, "", append(explain, "--debug-server-name", "other.example.org")...).Fails(t, "is for another host")
	h.Run(t, "", append(explain, "--debug-server-name", "example.com")...).Succeeds(t, "Placement team-a/web selects 1 cluster")
}

// Of many clusters that are not selected, the best are listed and the others counted.
func TestExplainManyClusters(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	r := report.Report{
		Placement: &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "many"}}, Funnel: &report.Funnel{},
	}
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		r.Clusters = append(r.Clusters, report.ClusterReason{ClusterName: name, Reason: "it is far away"})
	}
	r.AggregatedScores = []report.ClusterScore{{ClusterName: "p", Score: 7}}
	content, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	h.Handle("GET "+report.Path+"default/many", fakehub.JSON(string(content)))
	h.Run(t, "", "explain", "placement", "many").Succeeds(t, "p              it is far away\na              it is far away\n",
		"6 clusters more not selected")
}

// PL-23: a placement from a file is sent as it is written, so that the hub distinguishes what is left out from what is zero.
func TestExplainWhatIf(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Handle("POST "+report.Path, fakehub.JSON(aReport))
	file := filepath.Join(t.TempDir(), "placement.yaml")
	const content = "apiVersion: cluster.open-cluster-management.io/v1beta1\nkind: Placement\nspec:\n  prioritizerPolicy:\n    configurations:\n    - scoreCoordinate: {builtIn: Steady}\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Run(t, "", "explain", "placement", "--what-if", file).Succeeds(t, "Placement team-a/web selects 1 cluster")
	h.Run(t, content, "explain", "placement", "web", "-n", "team-a", "--what-if", "-", "-c", "us").Succeeds(t, "its labels do not match")
	const spec = `"spec":{"prioritizerPolicy":{"configurations":[{"scoreCoordinate":{"builtIn":"Steady"}}]}}}`
	for i, want := range []string{`"metadata":{"namespace":"default"},` + spec, `"metadata":{"name":"web","namespace":"team-a"},` + spec} {
		if sent := h.Requests("POST")[i].Body; !strings.Contains(sent, want) {
			t.Errorf("it sent %s, want %s", sent, want)
		}
	}
	for says, input := range map[string]string{
		"has 0 objects, want one Placement":          "# nothing\n",
		"has 2 objects":                              content + "---\n" + content,
		`unknown field "numClusters"`:                content + "  numClusters: 1\n",
		"is a v1 ConfigMap, want a":                  "apiVersion: v1\nkind: ConfigMap\n",
		"is in namespace team-b, not in team-a":      content + "metadata: {namespace: team-b}\n",
		"document 1":                                 "a: b: c\n",
		"cannot unmarshal string into Go struct fie": strings.Replace(content, "{builtIn: Steady}", "Steady", 1),
	} {
		h.Run(t, input, "explain", "placement", "-n", "team-a", "--what-if", "-").Fails(t, "--what-if", says)
	}
	h.Run(t, "", "explain", "placement", "--what-if", file+".gone").Fails(t, "--what-if", "no such file")
}
