package cli_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

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
	var out, errOut bytes.Buffer
	code := cli.Main(ctx, args, strings.NewReader(stdin), &out, &errOut)
	return result{out.String(), errOut.String(), code}
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
	if got := h.run(t, "", "get", "clusters", "--clusterset", "prod", "-o", "table"); strings.Contains(got.out, "cluster2") || !strings.Contains(got.out, "cluster1") {
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
	if got := h.run(t, "", "get", "clusters", "--clusterset", "empty"); got.code != 0 || !strings.Contains(got.errOut, `"empty"`) || strings.Contains(got.errOut, "get token") {
		t.Errorf("of an empty set: %+v", got)
	}
	h.run(t, "", "get", "clusters", "-o", "xml").fails(t, "tree, table, yaml, json")
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

const configMap = `
# a comment makes no document
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: default
  uid: of-another-cluster
data:
  key: value
`

// CA-26
func TestGetWorks(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	for _, c := range []string{"cluster1", "cluster2"} {
		h.Put(t, strings.Replace(worksPath, "cluster1", c, 1)+"/web", &workv1.ManifestWork{
			TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: c, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}}},
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
	if got := h.run(t, "", "get", "works", "--clusters", "cluster2", "-o", "table"); strings.Contains(got.out, "cluster1") || !strings.Contains(got.out, "cluster2") {
		t.Errorf("of cluster2: %s", got.out)
	}
	h.run(t, "", "get", "works", "web", "-c", "cluster1", "-o", "yaml").succeeds(t, "kind: ManifestWork\n", "namespace: cluster1")
	h.run(t, "", "get", "works", "gone").fails(t, `"gone"`)
	h.run(t, "", "get", "works", "gone", "--cluster", "cluster1").fails(t, `"gone" not found`, "capstan get works")
	h.run(t, "", "get", "works", "--clusters", "idle").succeeds(t, "ManifestWorks: none")
	h.run(t, "", "get", "works", "--clusters", "cluster1,misspelt").fails(t, `"misspelt" not found`, "capstan get clusters")
	h.run(t, "", "get", "works", "--clusters", "Bad/Name").fails(t, `"Bad/Name"`, "small letters")
	h.run(t, "", "get", "works", "web", "other").fails(t, "accepts at most 1 arg")
}

// CA-31
func TestCreateWork(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	create := []string{"create", "work", "web", "-f", "-", "--clusters", "cluster1"}
	h.run(t, configMap, create...).succeeds(t, "create work web in cluster cluster1")
	var work workv1.ManifestWork
	h.Get(t, worksPath+"/web", &work)
	if len(work.Spec.Workload.Manifests) != 1 || strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), "uid") {
		t.Errorf("manifests %s", work.Spec.Workload.Manifests)
	}
	h.run(t, configMap, create...).succeeds(t, "already exists, with these manifests")

	changed := strings.Replace(configMap, "value", "other", 1)
	h.run(t, changed, create...).fails(t, "work web in cluster cluster1 already exists", "--overwrite")
	work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	h.Put(t, worksPath+"/web", &work)
	h.run(t, changed, append(create, "--overwrite")...).succeeds(t, "update work web in cluster cluster1")
	h.Get(t, worksPath+"/web", &work)
	if !strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), `"other"`) || work.Spec.DeleteOption == nil {
		t.Errorf("after --overwrite: %s, delete option %v", work.Spec.Workload.Manifests, work.Spec.DeleteOption)
	}
}

func TestCreateWorkDoesWhatItCan(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.Answer("POST "+strings.Replace(worksPath, "cluster1", "gone", 1),
		fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "gone" not found`))
	got := h.run(t, configMap, "create", "work", "web", "-f", "-", "--clusters", "gone,cluster1")
	got.fails(t, "cluster gone has no namespace", "capstan accept --clusters gone")
	if !strings.Contains(got.out, "create work web in cluster cluster1") {
		t.Errorf("the other cluster was left out: %s", got.out)
	}
}

// CA-01
func TestCreateWorkDryRun(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	got := h.run(t, configMap, "create", "work", "web", "-f", "-", "--clusters", "cluster1,cluster2", "--dry-run")
	got.succeeds(t, "kind: ManifestWork", "namespace: cluster1", "namespace: cluster2", "key: value")
	if !strings.Contains(got.errOut, "capstan create work is running in dry-run mode") {
		t.Errorf("nothing says that nothing was done: %s", got.errOut)
	}
	if asked := h.Requests("POST"); len(asked) != 0 {
		t.Errorf("something was done: %+v", asked)
	}
}

func TestCreateWorkBadInput(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	nameless := write("nameless.yaml", configMap+"---\napiVersion: v1\nkind: Secret\nmetadata: {}\n")
	broken := write("broken.yaml", "a: [")
	tests := map[string]struct {
		args []string
		says []string
	}{
		"no cluster":      {[]string{"w", "-f", "-"}, []string{"either --cluster or --clusters needs to be set"}},
		"no file":         {[]string{"w", "--cluster", "c"}, []string{"-f is missing"}},
		"no name":         {[]string{"-f", "-", "--cluster", "c"}, []string{"0 names given"}},
		"bad name":        {[]string{"W_", "-f", "-", "--cluster", "c"}, []string{`"W_"`, "lower case"}},
		"missing file":    {[]string{"w", "-f", dir + "/gone", "--cluster", "c"}, []string{dir + "/gone", "no such file"}},
		"nameless object": {[]string{"w", "-f", nameless, "--cluster", "c"}, []string{nameless + ": document 3 (Secret): metadata.name is missing"}},
		"no object":       {[]string{"w", "-f", write("list.yaml", "- a"), "--cluster", "c"}, []string{"list.yaml: document 1 is not a Kubernetes object"}},
		"bad cluster":     {[]string{"w", "-f", "-", "--clusters", "c,C_"}, []string{`--clusters: "C_"`, "small letters"}},
		"missing URL":     {[]string{"w", "-f", h.URL + "/gone", "--cluster", "c"}, []string{"-f:", h.URL}},
		"broken file":     {[]string{"w", "-f", broken, "--cluster", "c"}, []string{broken, "document 1"}},
		"nothing at all":  {[]string{"w", "-f", write("empty/readme.txt", "x"), "-f", filepath.Dir(write("none/readme.txt", "x")), "--cluster", "c"}, []string{"readme.txt"}},
		"empty folder":    {[]string{"w", "-f", filepath.Join(dir, "none"), "--cluster", "c"}, []string{"no Kubernetes object"}},
		"the same twice":  {[]string{"w", "-f", "-", "-f", write("same.yaml", configMap), "--cluster", "c"}, []string{"same.yaml: document 2", "ConfigMap default/settings is in standard input: document 2 already"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h.run(t, configMap, append([]string{"create", "work"}, test.args...)...).fails(t, test.says...)
		})
	}
}

func TestCreateWorkOfNothing(t *testing.T) {
	t.Parallel()
	newHub(t).run(t, "# nothing\n", "create", "work", "w", "-f", "-", "--cluster", "cluster1").fails(t, "no Kubernetes object in standard input")
}

func TestCreateWorkNested(t *testing.T) {
	t.Parallel()
	got := newHub(t).run(t, "", "create", "work", "web", "-f", "../../deploy/examples/manifestwork-nginx.yaml", "--cluster", "cluster1")
	got.succeeds(t, "create work web")
	if !strings.Contains(got.errOut, `Warning: ManifestWork "nginx"`) || !strings.Contains(got.errOut, "kubectl apply -f") {
		t.Errorf("no warning: %s", got.errOut)
	}
	if plain := newHub(t).run(t, configMap, "create", "work", "web", "-f", "-", "--cluster", "cluster1"); strings.Contains(plain.errOut, "Warning") {
		t.Errorf("a warning about nothing: %s", plain.errOut)
	}
}

func TestCreateWorkFolders(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	dir := t.TempDir()
	list := `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}},{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"b"}}]}`
	for name, content := range map[string]string{"list.json": list, "sub/map.yml": configMap, "notes.txt": "not for Kubernetes"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for recursive, want := range map[string]int{"true": 3, "false": 2} {
		h.run(t, "", "create", "work", "deep-"+recursive, "-f", dir, "--recursive="+recursive, "--cluster", "cluster1").succeeds(t)
		var work workv1.ManifestWork
		h.Get(t, worksPath+"/deep-"+recursive, &work)
		if got := len(work.Spec.Workload.Manifests); got != want {
			t.Errorf("recursive %s: %d manifests, want %d", recursive, got, want)
		}
	}
}

// CA-31: -f reads what kubectl reads.
func TestCreateWorkFromURL(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	files := httptest.NewServer(http.FileServer(http.Dir("../../deploy/examples")))
	t.Cleanup(files.Close)
	h.run(t, "", "create", "work", "web", "-f", files.URL+"/manifestwork-nginx.yaml", "--cluster", "cluster1").succeeds(t)
	h.run(t, "", "create", "work", "web", "-f", files.URL+"/gone.yaml", "--cluster", "cluster1").fails(t, files.URL+"/gone.yaml", "404")
}

// CA-21
func TestGetToken(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.Answer("POST /api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token",
		fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"secret"}}`))
	line := "capstan join --hub-token secret --hub-apiserver " + h.URL + " --managed-cluster-kubeconfig <kubeconfig> --cluster-name <cluster_name>\n"
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

// CA-21: whoever pastes the command can tell the hub from an impostor, whatever the token.
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

// CA-15, CA-17
func TestJoinBadInput(t *testing.T) {
	t.Parallel()
	kubeconfig := newHub(t).kubeconfig
	contextless := withoutCurrentContext(t, kubeconfig)
	good := map[string]string{
		"--hub-token": "t", "--hub-apiserver": "https://127.0.0.1:1", "--cluster-name": "c1", "--managed-cluster-kubeconfig": kubeconfig,
	}
	tests := map[string]struct {
		flag, value string
		says        []string
	}{
		"no token":                {"--hub-token", "", []string{"token is missing", "capstan get token"}},
		"no hub":                  {"--hub-apiserver", "", []string{"hub-server is missing", "capstan get token"}},
		"no name":                 {"--cluster-name", "", []string{"cluster-name is missing"}},
		"no kubeconfig":           {"--managed-cluster-kubeconfig", "", []string{"--managed-cluster-kubeconfig is missing", "process of this machine"}},
		"bad name":                {"--cluster-name", "C1", []string{"--cluster-name", `"C1"`}},
		"long name":               {"--cluster-name", strings.Repeat("c", 64), []string{"63"}},
		"reserved name":           {"--cluster-name", "managed-clusters", []string{"reserved"}},
		"name of the hub's own":   {"--cluster-name", "kube-system", []string{`"kube-system" is reserved`}},
		"bad hash":                {"--ca-cert-hash", "sha256:1", []string{"--ca-cert-hash", `"sha256:1"`, "capstan get token"}},
		"a folder as kubeconfig":  {"--managed-cluster-kubeconfig", filepath.Dir(kubeconfig), []string{filepath.Dir(kubeconfig), "directory"}},
		"no current context":      {"--managed-cluster-kubeconfig", contextless, []string{contextless, `""`, "choose one of hub", "use-context"}},
		"bad URL":                 {"--hub-apiserver", "hub:6443", []string{"--hub-apiserver", "https://"}},
		"missing kubeconfig":      {"--managed-cluster-kubeconfig", "/gone", []string{"/gone"}},
		"a context":               {"--context", "c", []string{"--context", "--managed-cluster-kubeconfig"}},
		"a hub that is not there": {"--hub-apiserver", "https://127.0.0.1:1", []string{"nothing answers at https://127.0.0.1:1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"join", test.flag + "=" + test.value}
			for flag, value := range good {
				if flag != test.flag {
					args = append(args, flag+"="+value)
				}
			}
			run(t.Context(), "", args...).fails(t, test.says...)
		})
	}
}

func withoutCurrentContext(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.CurrentContext = ""
	file := kubeconfig + "-contextless"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// A kubeconfig that leads nowhere is found before the hub hears of the cluster.
func TestJoinUnreachableCluster(t *testing.T) {
	t.Parallel()
	h, gone := newHub(t), newHub(t)
	gone.Close()
	h.Answer("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	run(t.Context(), "", "join", "--hub-token", "t", "--hub-apiserver", h.URL, "--cluster-name", "c1", "--ca-file", writeCA(t, h),
		"--managed-cluster-kubeconfig", gone.kubeconfig).fails(t, "--managed-cluster-kubeconfig: "+gone.kubeconfig, gone.URL, "connection refused", "see whether it runs")
	if asked := h.Requests("POST"); len(asked) != 0 {
		t.Errorf("the hub was asked for %+v", asked)
	}
}

func writeCA(t *testing.T, h hub) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, h.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// CA-17: the URL that a cluster publishes is what its agent reports.
func TestJoinReportsURL(t *testing.T) {
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "capstan-agent"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	h, managed := newHub(t), newHub(t)
	h.Answer("GET /apis/cluster.open-cluster-management.io/v1", fakehub.JSON("{}"))
	join := []string{"join", "--dry-run", "--hub-token", "t", "--hub-apiserver", h.URL, "--cluster-name", "c1", "--ca-file", writeCA(t, h),
		"--managed-cluster-kubeconfig", managed.kubeconfig}
	run(t.Context(), "", join...).succeeds(t, "--spoke-external-server-urls "+managed.URL)
	managed.Put(t, "/api/v1/namespaces/kube-public/configmaps/cluster-info", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
		Data: map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: 'https://prod1.example.com'}}]"},
	})
	run(t.Context(), "", join...).succeeds(t, "--spoke-external-server-urls https://prod1.example.com")
}

// CA-44
func TestVersion(t *testing.T) {
	t.Parallel()
	run(t.Context(), "", "version").succeeds(t, "capstan\tversion\t:")
	run(t.Context(), "", "--version").succeeds(t, "capstan version ")
	run(t.Context(), "", "version", "-o", "json").succeeds(t, `"version":`, `"platform":`)
}

func TestBadCommandLine(t *testing.T) {
	t.Parallel()
	for command, says := range map[string][]string{
		"get clutsers":             {`unknown command "clutsers" for "capstan get"`, `Did you mean "clusters"?`},
		"creat":                    {`unknown command "creat"`, `Did you mean "create"?`},
		"frobnicate":               {`unknown command "frobnicate"`, "capstan --help"},
		"get clusters --bogus":     {"unknown flag: --bogus", "capstan get clusters --help"},
		"get clusters --timeout 0": {"--timeout: 0"},
		"up --clusters 0":          {"--clusters: 0"},
		"up 3":                     {`"3"`, "flags only"},
		"accept":                   {"either --cluster or --clusters needs to be set"},
		"accept cluster1":          {`"cluster1"`, "accept --clusters CLUSTER,..."},
	} {
		run(t.Context(), "", strings.Fields(command)...).fails(t, says...)
	}
}

// Names of clusters complete from the hub, the last one of a list.
func TestCompletion(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	h.Put(t, clustersPath+"/idle", cluster("idle", nil))
	h.Put(t, worksPath+"/web", &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster1"}})
	for typed, want := range map[string]string{
		"accept --cluster=":           "cluster1\ncluster2\nidle\n",
		"accept --clusters=":          "cluster1\ncluster2\nidle\n",
		"accept --clusters=cluster1,": "cluster1,cluster2\ncluster1,idle\n",
		"get clusters -o ":            "tree\ntable\nyaml\njson\n",
		"get works --context=":        "hub\n",
		"get works ":                  "web\n",
		"get works --cluster=idle ":   "",
		"get works web ":              "",
		"join --cluster-name=":        "",
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
