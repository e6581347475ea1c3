package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

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
