package cli_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const (
	clustersPath = "/apis/cluster.open-cluster-management.io/v1/managedclusters"
	worksPath    = "/apis/work.open-cluster-management.io/v1/namespaces/cluster1/manifestworks"
)

// hub is a fake hub and the kubeconfig that leads to it.
type hub struct {
	*fakehub.Hub
	kubeconfig string
}

func newHub(t *testing.T) hub {
	t.Helper()
	h := hub{fakehub.New(t), filepath.Join(t.TempDir(), "kubeconfig")}
	h.Hub.Kubeconfig(t, h.kubeconfig, "hub")
	return h
}

// result is what a command printed and how it ended.
type result struct {
	out, errOut string
	code        int
}

func (h hub) run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return run(t.Context(), stdin, append([]string{"--kubeconfig", h.kubeconfig}, args...)...)
}

func run(ctx context.Context, stdin string, args ...string) result {
	return runUntil(ctx, nil, stdin, args...)
}

// runUntil runs a command for which no time passes: what does not depend on how long something takes is the same on a machine that is slow.
// The time of --timeout is over when the channel is closed; without one, it passes as always.
func runUntil(ctx context.Context, over <-chan struct{}, stdin string, args ...string) result {
	var out, errOut bytes.Buffer
	code := cli.MainAt(ctx, clocktesting.NewFakeClock(time.Now()), over, args, strings.NewReader(stdin), &out, &errOut)
	return result{out.String(), errOut.String(), code}
}

// timesOut runs a command whose --timeout is over once it watches a collection: it has then seen what is missing.
func (h hub) timesOut(t *testing.T, collection, stdin string, args ...string) result {
	t.Helper()
	seen := h.Watches(collection)
	return timesOutAfter(t, func(ctx context.Context) { _ = h.AwaitWatches(ctx, collection, seen+1) }, stdin,
		append([]string{"--kubeconfig", h.kubeconfig}, args...)...)
}

// closed waits until a channel is closed.
func closed(channel <-chan struct{}) func(ctx context.Context) {
	return func(ctx context.Context) {
		select {
		case <-channel:
		case <-ctx.Done():
		}
	}
}

// timesOutAfter runs a command whose --timeout is over when the function returns, which waits for something that the command does.
func timesOutAfter(t *testing.T, waits func(ctx context.Context), stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		waits(ctx)
	}()
	return runUntil(t.Context(), over, stdin, args...)
}

// succeeds fails the test unless the command did what it was to and printed some words.
func (r result) succeeds(t *testing.T, words ...string) {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.errOut)
	}
	for _, word := range words {
		if !strings.Contains(r.out, word) {
			t.Errorf("%q is missing in:\n%s", word, r.out)
		}
	}
}

// fails fails the test unless the command failed and said some words.
func (r result) fails(t *testing.T, words ...string) {
	t.Helper()
	if r.code != 1 {
		t.Errorf("exit code %d, want 1", r.code)
	}
	if strings.Contains(r.errOut, "Usage:") {
		t.Errorf("the usage buries the error:\n%s", r.errOut)
	}
	for _, word := range words {
		if !strings.Contains(r.errOut, word) {
			t.Errorf("%q is missing in: %s", word, r.errOut)
		}
	}
}

func cluster(name string, labels map[string]string, conditions ...string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}
	for _, condition := range conditions {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
	return c
}

// newHubWithClusters is a hub with the clusters cluster1, cluster2 and idle, which are accepted.
func newHubWithClusters(t *testing.T) hub {
	t.Helper()
	h := newHub(t)
	for _, name := range []string{"cluster1", "cluster2", "idle"} {
		h.Put(t, clustersPath+"/"+name, acceptedCluster(name))
	}
	return h
}

func acceptedCluster(name string, conditions ...string) *clusterv1.ManagedCluster {
	c := cluster(name, nil, conditions...)
	c.Spec.HubAcceptsClient = true
	return c
}

func (h hub) putClusters(t *testing.T) {
	t.Helper()
	h.Put(t, clustersPath+"/cluster1", cluster("cluster1", map[string]string{"cluster.open-cluster-management.io/clusterset": "prod"}))
	h.Put(t, clustersPath+"/cluster2", cluster("cluster2", nil))
}

// CA-23
func TestGetClusters(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	h.run(t, "", "get", "clusters").succeeds(t, "ManagedClusters: 2", "├── cluster1", "└── cluster2")
	if got := h.run(t, "", "get", "clusters", "--clusterset", "prod", "-o", "table"); strings.Contains(got.out, "cluster2") ||
		!strings.Contains(got.out, "cluster1") {
		t.Errorf("of the set prod: %s", got.out)
	}
	var one clusterv1.ManagedCluster
	if err := json.Unmarshal([]byte(h.run(t, "", "get", "clusters", "cluster2", "-o", "json").out), &one); err != nil {
		t.Fatal(err)
	}
	if one.Name != "cluster2" || one.Kind != "ManagedCluster" || one.APIVersion != "cluster.open-cluster-management.io/v1" {
		t.Errorf("one cluster as JSON: %+v", one.TypeMeta)
	}
	var list clusterv1.ManagedClusterList
	if err := json.Unmarshal([]byte(h.run(t, "", "get", "clusters", "-o", "json").out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || list.Kind != "ManagedClusterList" || list.Items[0].Kind != "ManagedCluster" {
		t.Errorf("clusters as JSON: %+v", list)
	}
	h.run(t, "", "get", "clusters", "cluster1", "gone").fails(t, `"gone"`, "capstan get clusters")
	h.run(t, "", "get", "clusters", "gone").fails(t, `"gone" not found`, "capstan get clusters")
	if got := h.run(t, "", "get", "clusters", "--clusterset", "empty"); got.code != 0 || !strings.Contains(got.errOut, `"empty"`) ||
		strings.Contains(got.errOut, "get token") {
		t.Errorf("of an empty set: %+v", got)
	}
	h.run(t, "", "get", "clusters", "-o", "xml").fails(t, "tree, table, yaml, json, name")
}

func TestGetClustersNone(t *testing.T) {
	t.Parallel()
	got := newHub(t).run(t, "", "get", "clusters")
	got.succeeds(t, "ManagedClusters: none")
	if !strings.Contains(got.errOut, "capstan get token") {
		t.Errorf("nothing says what to do next: %s", got.errOut)
	}
}

// CA-04
func TestNotAHub(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	for _, request := range []string{"GET " + clustersPath, "GET " + clustersPath + "/cluster1", "POST " + worksPath} {
		h.Answer(request, http.NotFound)
	}
	for _, command := range []string{"get clusters", "accept --cluster cluster1", "create work w -f - --cluster cluster1"} {
		h.run(t, configMap, strings.Fields(command)...).fails(t, "is not an Open Cluster Management hub", "--context")
	}
}

// CA-26
func TestGetWorks(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	for _, c := range []string{"cluster1", "cluster2"} {
		h.Put(t, strings.Replace(worksPath, "cluster1", c, 1)+"/web", &workv1.ManifestWork{
			TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: c, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "another"}}},
		})
	}
	for _, output := range []string{"yaml", "json"} {
		if got := h.run(t, "", "get", "works", "-o", output); strings.Contains(got.out, "managedFields") {
			t.Errorf("nobody reads managedFields:\n%s", got.out)
		}
	}
	h.putClusters(t)
	h.Put(t, clustersPath+"/idle", cluster("idle", nil))
	h.run(t, "", "get", "works").succeeds(t, "ManifestWorks: 2", "Cluster: cluster1", "Cluster: cluster2")
	if got := h.run(t, "", "get", "works", "--clusters", "cluster2", "-o", "table"); strings.Contains(got.out, "cluster1") ||
		!strings.Contains(got.out, "cluster2") {
		t.Errorf("of cluster2: %s", got.out)
	}
	h.run(t, "", "get", "works", "web", "-c", "cluster1", "-o", "yaml").succeeds(t, "kind: ManifestWork\n", "namespace: cluster1")
	h.run(t, "", "get", "works", "-c", "cluster1", "-o", "name").succeeds(t, "manifestwork.work.open-cluster-management.io/web\n")
	h.run(t, "", "get", "works", "gone").fails(t, `"gone"`)
	h.run(t, "", "get", "works", "gone", "--cluster", "cluster1").fails(t, `"gone" not found`, "capstan get works")
	h.run(t, "", "get", "works", "--clusters", "idle").succeeds(t, "ManifestWorks: none")
	h.run(t, "", "get", "works", "--clusters", "cluster1,misspelt").fails(t, `"misspelt" not found`, "capstan get clusters")
	h.run(t, "", "get", "works", "--clusters", "Bad/Name").fails(t, `"Bad/Name"`, "small letters")
	h.run(t, "", "get", "works", "web", "other").fails(t, "accepts at most 1 arg")
}

// CA-21
func TestGetToken(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.Answer("POST /api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token",
		fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"secret"}}`))
	line := "capstan join --hub-token secret --hub-apiserver " + h.URL +
		" --cluster-name <cluster_name>\n"
	h.run(t, "", "get", "token").succeeds(t, "token=secret\nplease log on spoke and run:\n", line)
	if got, want := h.run(t, "", "get", "token", "-o", "json").out, `{"hub-token":"secret","hub-apiserver":"`+h.URL+`"}`+"\n"; got != want {
		t.Errorf("JSON %s, want %s", got, want)
	}
	file := filepath.Join(t.TempDir(), "token")
	if got := h.run(t, "", "get", "token", "--output-file", file); got.code != 0 || got.out != "" || !strings.Contains(got.errOut, file) {
		t.Errorf("with a file: %+v", got)
	}
	misspelt := filepath.Join(t.TempDir(), "no", "folder")
	h.run(t, "", "get", "token", "--output-file", filepath.Join(misspelt, "token")).fails(t, "--output-file", misspelt)
	if _, err := os.Stat(misspelt); err == nil {
		t.Errorf("it made the folder %s", misspelt)
	}
	content, err := os.ReadFile(file)
	info, statErr := os.Stat(file)
	if err != nil || statErr != nil || !strings.Contains(string(content), line) || info.Mode().Perm() != 0o600 {
		t.Errorf("file %q, %v, errors %v, %v", content, info, err, statErr)
	}
}

// CA-21: a user who pastes the command can tell the hub from an impostor, whatever the token.
func TestGetTokenPinsTheHub(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.Answer("POST /api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token",
		fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"secret"}}`))
	h.Put(t, "/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt", &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(h.CA())},
	})
	pin := fmt.Sprintf("sha256:%x", sha256.Sum256(h.Certificate().RawSubjectPublicKeyInfo))
	h.run(t, "", "get", "token").succeeds(t, " --hub-apiserver "+h.URL+" --ca-cert-hash "+pin+" ")
	h.run(t, "", "get", "token", "-o", "json").succeeds(t, `"ca-cert-hash":["`+pin+`"]`)
}

// CA-44
func TestVersion(t *testing.T) {
	t.Parallel()
	run(t.Context(), "", "version").succeeds(t, "capstan\tversion\t:")
	run(t.Context(), "", "--version").succeeds(t, "capstan version ")
	run(t.Context(), "", "version", "-o", "json").succeeds(t, `"version":`, `"platform":`)
}

// CA-02 CA-03
func TestBadCommandLine(t *testing.T) {
	t.Parallel()
	for command, says := range map[string][]string{
		"get clutsers":                           {`unknown command "clutsers" for "capstan get"`, `Did you mean "clusters"?`},
		"creat":                                  {`unknown command "creat"`, `Did you mean "create"?`},
		"frobnicate":                             {`unknown command "frobnicate"`, "capstan --help"},
		"get clusters --bogus":                   {"unknown flag: --bogus", "capstan get clusters --help"},
		"get clusters --timeout 0":               {"--timeout: 0"},
		"up --clusters 0":                        {"--clusters: 0"},
		"up 3":                                   {`"3"`, "flags only"},
		"accept":                                 {"either --cluster or --clusters needs to be set"},
		"unjoin":                                 {"cluster-name is missing", "capstan status"},
		"unjoin --cluster-name C1":               {"--cluster-name", `"C1"`},
		"unjoin --cluster-name c --kubeconfig k": {"kubeconfig k is missing or empty", "leads to a cluster"},
		"unjoin --cluster-name c --local --kubeconfig k": {"--kubeconfig, --context: of no use with --local"},
		"accept cluster1": {`"cluster1"`, "accept --clusters CLUSTER,..."},
	} {
		run(t.Context(), "", strings.Fields(command)...).fails(t, says...)
	}
}

// CA-02: names of clusters complete from the hub, the last one of a list.
func TestCompletion(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	h.Put(t, clustersPath+"/idle", cluster("idle", nil))
	h.putRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	h.putSet(t, "default")
	h.putSet(t, "prod")
	h.putNamespace(t, "team-a")
	h.putPlacement(t, "team-a", "web")
	h.putPlacement(t, "team-b", "db")
	h.Put(t, worksPath+"/web", &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster1"}})
	h.putCatalogue(t, "hello", nil)
	h.putAddOn(t, "cluster1", "orphan")
	for typed, want := range map[string]string{
		"accept --cluster=":                        "cluster1\ncluster2\nidle\n",
		"accept --clusters=":                       "cluster1\ncluster2\nidle\n",
		"accept --clusters=cluster1,":              "cluster1,cluster2\ncluster1,idle\n",
		"get clusters -o ":                         "tree\ntable\nyaml\njson\nname\n",
		"get clusters --clusterset=":               "default\nprod\n",
		"clusterset bind ":                         "default\nprod\n",
		"clusterset bind prod ":                    "",
		"delete clusterset prod ":                  "default\n",
		"clusterset set prod --clusters=cluster1,": "cluster1,cluster2\ncluster1,idle\n",
		"clusterset bind prod --namespace=":        "team-a\n",
		"accept --cluster=cluster1 --requesters=":  "system:open-cluster-management:cluster1:a1\n",
		"get works --context=":                     "hub\n",
		"get works ":                               "web\n",
		"get works --cluster=idle ":                "",
		"get works web ":                           "",
		"join --cluster-name=":                     "",
		"get placements ":                          "db\nweb\n",
		"get placements -n team-b ":                "db\n",
		"explain placement ":                       "db\nweb\n",
		"explain placement web --cluster=":         "cluster1\ncluster2\nidle\n",
		"create placement new --clustersets=prod,": "prod,default\n",
		"create work new --placement=":             "team-a/web\nteam-b/db\n",
		"create work new --dry-run=":               "client\nserver\n",
		"delete work --cluster=cluster1 ":          "web\n",
		"get addon hello ":                         "orphan\n",
		"addon enable --names=hello,":              "hello,orphan\n",
		"addon disable --clusters=cluster1,":       "cluster1,cluster2\ncluster1,idle\n",
		"addon create new --placement-ref=":        "team-a/web\nteam-b/db\n",
		"install hub-addon --names=argocd,":        "argocd,argocd-agent\nargocd,governance-policy-framework\n",
		"uninstall hub-addon --namespace=":         "team-a\n",
		"diff work ":                               "web\n",
		"kubeconfig ":                              "cluster1\ncluster2\nidle\n",
		"kubeconfig cluster1 ":                     "cluster2\nidle\n",
		"kubectl --cluster=":                       "cluster1\ncluster2\nidle\n",
		"proxy kubectl --cluster=":                 "cluster1\ncluster2\nidle\n",
		"proxy health --clusters=idle,":            "idle,cluster1\nidle,cluster2\n",
		"get pods --clusters=cluster1,":            "cluster1,cluster2\ncluster1,idle\n",
		"get pods --clusterset=":                   "default\nprod\n",
		"access --cluster=":                        "cluster1\ncluster2\nidle\n",
		"access --clusterset=":                     "default\nprod\n",
		"access ":                                  "get\nlist\nwatch\ncreate\nupdate\npatch\ndelete\ndeletecollection\n",
		"access list ":                             "",
		"access --as=":                             "",
		"get pods --placement=":                    "team-a/web\nteam-b/db\n",
		"get pods -o ":                             "table\nwide\nyaml\njson\nname\n",
	} {
		words := strings.Split(typed, " ")
		got := h.run(t, "", append([]string{"__complete", "--kubeconfig", h.kubeconfig}, words...)...)
		if !strings.HasPrefix(got.out, want+":") {
			t.Errorf("%q completes to %q, want %q", typed, got.out, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		run(t.Context(), "", "completion", shell).succeeds(t, "capstan")
	}
}
