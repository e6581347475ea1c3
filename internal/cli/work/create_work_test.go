package work_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

func autoscaler(version string) string {
	return "{apiVersion: autoscaling/" + version + ", kind: HorizontalPodAutoscaler, metadata: {namespace: default, name: web}}\n"
}

// CA-31, WK-01: of an export, what the cluster has set that it comes from is left out, and said.
func TestCreateWorkFromExport(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	const exported = "{apiVersion: v1, kind: Service, metadata: {namespace: default, name: web, uid: u}, spec: {clusterIP: 10.0.0.1}}"
	result := h.Run(t, exported, "create", "work", "web", "-f", "-", "--clusters", "cluster1")
	result.Succeeds(t, "create work web in cluster cluster1")
	want := "Warning: standard input: document 1: v1 Service default/web: left out, because the cluster that it was exported from has set it: " +
		"spec.clusterIP"
	if !strings.Contains(result.ErrOut, want) {
		t.Errorf("it says %q, want %q", result.ErrOut, want)
	}
	var work workv1.ManifestWork
	h.Get(t, clitest.WorksPath+"/web", &work)
	if strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), "clusterIP") {
		t.Errorf("manifests %s", work.Spec.Workload.Manifests)
	}
}

// CA-31
func TestCreateWork(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	create := []string{"create", "work", "web", "-f", "-", "--clusters", "cluster1"}
	h.Run(t, clitest.ConfigMap, create...).Succeeds(t, "create work web in cluster cluster1")
	var work workv1.ManifestWork
	h.Get(t, clitest.WorksPath+"/web", &work)
	if len(work.Spec.Workload.Manifests) != 1 || strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), "uid") {
		t.Errorf("manifests %s", work.Spec.Workload.Manifests)
	}
	h.Run(t, clitest.ConfigMap, create...).Succeeds(t, "already exists, with these manifests")

	changed := strings.Replace(clitest.ConfigMap, "value", "other", 1)
	h.Run(t, changed, create...).Fails(t, "work web in cluster cluster1 already exists", "--overwrite")
	work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	h.Put(t, clitest.WorksPath+"/web", &work)
	h.Run(t, changed, append(create, "--overwrite")...).Succeeds(t, "update work web in cluster cluster1")
	h.Get(t, clitest.WorksPath+"/web", &work)
	if !strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), `"other"`) || work.Spec.DeleteOption == nil {
		t.Errorf("after --overwrite: %s, delete option %v", work.Spec.Workload.Manifests, work.Spec.DeleteOption)
	}
}

// Nothing is written before all clusters, and what they have, are known to be right; what fails then does not block the others.
func TestCreateWorkPlansFirst(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	h.Put(t, clitest.ClustersPath+"/pending", clitest.Cluster("pending", nil))
	create := []string{"create", "work", "web", "-f", "-", "--clusters"}
	got := h.Run(t, clitest.ConfigMap, append(create, "cluster1,gone,pending")...)
	got.Fails(t, `"gone" not found`, "capstan get clusters", "cluster pending has no namespace", "capstan accept --clusters pending")
	in := func(cluster string) string { return strings.Replace(clitest.WorksPath, "cluster1", cluster, 1) }
	owned := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster2",
		Labels: map[string]string{"work.open-cluster-management.io/manifestworkreplicaset": "default.web"}}}
	h.Put(t, in("cluster2")+"/web", owned)
	h.Run(t, clitest.ConfigMap, append(create, "cluster1,cluster2", "--overwrite")...).Fails(t, "belongs to ManifestWorkReplicaSet default.web")
	owned.Labels = nil
	h.Put(t, in("cluster2")+"/web", owned)
	h.Run(t, clitest.ConfigMap, append(create, "cluster1,cluster2")...).Fails(t, "web in cluster cluster2 already exists", "--overwrite")
	now := metav1.Now()
	owned.DeletionTimestamp = &now
	h.Put(t, in("cluster2")+"/web", owned)
	h.Run(t, clitest.ConfigMap, append(create, "cluster1,cluster2", "--overwrite")...).Fails(t, "is being deleted",
		"capstan delete work web --cluster cluster2")
	if written := append(h.Requests("POST"), h.Requests("PUT")...); len(written) > 0 {
		t.Errorf("it wrote something: %+v", written)
	}

	h.Remove(t, in("cluster2")+"/web")
	h.Handle("POST "+in("cluster2"), fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not"))
	got = h.Run(t, clitest.ConfigMap, append(create, "cluster2,cluster1")...)
	got.Fails(t, "you may not")
	if !strings.Contains(got.Out, "create work web in cluster cluster1") {
		t.Errorf("the other cluster was left out: %s", got.Out)
	}
	h.Handle("GET "+clitest.ClustersPath+"/cluster1", fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not"))
	h.Run(t, clitest.ConfigMap, append(create, "cluster1")...).Succeeds(t, "already exists, with these manifests")
}

// CA-01
func TestCreateWorkDryRun(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	got := h.Run(t, clitest.ConfigMap, "create", "work", "web", "-f", "-", "--clusters", "cluster1,cluster2", "--dry-run")
	got.Succeeds(t, "kind: ManifestWork", "namespace: cluster1", "namespace: cluster2", "key: value")
	if !strings.Contains(got.ErrOut, "capstan create work is running in dry-run mode") {
		t.Errorf("nothing says that nothing was done: %s", got.ErrOut)
	}
	if sent := h.Requests("POST"); len(sent) != 0 {
		t.Errorf("something was done: %+v", sent)
	}
}

func TestCreateWorkBadInput(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
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
	nameless := write("nameless.yaml", clitest.ConfigMap+"---\napiVersion: v1\nkind: Secret\nmetadata: {}\n")
	broken := write("broken.yaml", "a: [")
	tests := map[string]struct {
		args []string
		says []string
	}{
		"no cluster": {[]string{"w", "-f", "-"}, []string{"either --cluster or --clusters needs to be set, or --placement"}},
		"both": {[]string{"w", "-f", "-", "--cluster", "c", "--placement", "default/p"},
			[]string{"[cluster placement] were all set"}},
		"bad placement": {[]string{"w", "-f", "-", "--placement", "p"}, []string{`--placement: "p"`, "default/web"}},
		"set of nothing": {[]string{"w", "-f", "-", "--cluster", "c", "-r"},
			[]string{"--replicaset: needs a placement", "--placement NAMESPACE/NAME"}},
		"set tried": {[]string{"w", "-f", "-", "--placement", "default/p", "-r", "--dry-run=server"},
			[]string{"--dry-run=server", "leave out --replicaset"}},
		"bad dry run":      {[]string{"w", "-f", "-", "--cluster", "c", "--dry-run=sever"}, []string{`"sever" is none of none, client, server`}},
		"-f and -k":        {[]string{"w", "-f", "-", "-k", dir, "--cluster", "c"}, []string{"[filename kustomize] were all set"}},
		"no kustomization": {[]string{"w", "-k", dir, "--cluster", "c"}, []string{"-k: " + dir + " cannot be built", "kustomization.yaml"}},
		"no file":          {[]string{"w", "--cluster", "c"}, []string{"-f is missing"}},
		"no name":          {[]string{"-f", "-", "--cluster", "c"}, []string{"0 names given"}},
		"bad name":         {[]string{"W_", "-f", "-", "--cluster", "c"}, []string{`"W_"`, "lower case"}},
		"missing file":     {[]string{"w", "-f", dir + "/gone", "--cluster", "c"}, []string{dir + "/gone", "no such file"}},
		"nameless object": {[]string{"w", "-f", nameless, "--cluster", "c"},
			[]string{nameless + ": document 3 (Secret): metadata.name is missing"}},
		"no object": {[]string{"w", "-f", write("list.yaml", "- a"), "--cluster", "c"},
			[]string{"list.yaml: document 1 is not a Kubernetes object"}},
		"bad cluster": {[]string{"w", "-f", "-", "--clusters", "c,C_"}, []string{`--clusters: "C_"`, "small letters"}},
		"missing URL": {[]string{"w", "-f", h.URL + "/gone", "--cluster", "c"}, []string{"-f:", h.URL}},
		"broken file": {[]string{"w", "-f", broken, "--cluster", "c"}, []string{broken, "document 1"}},
		"nothing at all": {[]string{"w", "-f", write("empty/readme.txt", "x"), "-f", filepath.Dir(write("none/readme.txt", "x")), "--cluster",
			"c"}, []string{"readme.txt"}},
		"empty folder": {[]string{"w", "-f", filepath.Join(dir, "none"), "--cluster", "c"}, []string{"no Kubernetes object"}},
		"the same twice": {[]string{"w", "-f", "-", "-f", write("same.yaml", clitest.ConfigMap), "--cluster", "c"},
			[]string{"same.yaml: document 2", "ConfigMap default/settings is in standard input: document 2 already"}},
		"the same in two versions": {[]string{"w", "-f", write("two.yaml", autoscaler("v1")+"---\n"+autoscaler("v2")), "--cluster", "c"},
			[]string{"two.yaml: document 2", "autoscaling/v2 HorizontalPodAutoscaler default/web is in", "two.yaml: document 1 already"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h.Run(t, clitest.ConfigMap, append([]string{"create", "work"}, test.args...)...).Fails(t, test.says...)
		})
	}
}

func TestCreateWorkOfNothing(t *testing.T) {
	t.Parallel()
	clitest.NewHub(t).Run(t, "# nothing\n", "create", "work", "w", "-f", "-", "--cluster", "cluster1").Fails(t,
		"no Kubernetes object in standard input")
}

func TestCreateWorkNested(t *testing.T) {
	t.Parallel()
	got := clitest.NewHubWithClusters(t).Run(t, "", "create", "work", "web", "-f", "../../../deploy/examples/manifestwork-nginx.yaml", "--cluster",
		"cluster1")
	got.Succeeds(t, "create work web")
	if !strings.Contains(got.ErrOut, `Warning: ManifestWork "nginx"`) || !strings.Contains(got.ErrOut, "kubectl apply -f") {
		t.Errorf("no warning: %s", got.ErrOut)
	}
	if plain := clitest.NewHubWithClusters(t).Run(t, clitest.ConfigMap, "create", "work", "web", "-f", "-", "--cluster",
		"cluster1"); strings.Contains(plain.ErrOut, "Warning") {
		t.Errorf("a warning about nothing: %s", plain.ErrOut)
	}
}

func TestCreateWorkFolders(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	dir := t.TempDir()
	list := `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}},{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"b"}}]}`
	for name, content := range map[string]string{"list.json": list, "sub/map.yml": clitest.ConfigMap, "notes.txt": "not for Kubernetes"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for recursive, want := range map[string]int{"true": 3, "false": 2} {
		h.Run(t, "", "create", "work", "deep-"+recursive, "-f", dir, "--recursive="+recursive, "--cluster", "cluster1").Succeeds(t)
		var work workv1.ManifestWork
		h.Get(t, clitest.WorksPath+"/deep-"+recursive, &work)
		if got := len(work.Spec.Workload.Manifests); got != want {
			t.Errorf("recursive %s: %d manifests, want %d", recursive, got, want)
		}
	}
}

// CA-31: -f reads what kubectl reads.
func TestCreateWorkFromURL(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	files := httptest.NewServer(http.FileServer(http.Dir("../../../deploy/examples")))
	t.Cleanup(files.Close)
	h.Run(t, "", "create", "work", "web", "-f", files.URL+"/manifestwork-nginx.yaml", "--cluster", "cluster1").Succeeds(t)
	h.Run(t, "", "create", "work", "web", "-f", files.URL+"/gone.yaml", "--cluster", "cluster1").Fails(t, files.URL+"/gone.yaml", "404")
}

// CA-31: -k builds what kubectl builds.
func TestCreateWorkKustomize(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"base/map.yaml":               clitest.ConfigMap,
		"base/kustomization.yaml":     "resources: [map.yaml]\n",
		"prod/kustomization.yaml":     "resources: [../base]\nnamePrefix: prod-\nlabels: [{pairs: {stage: prod}}]\n",
		"empty/kustomization.yaml":    "resources: []\n",
		"nameless/kustomization.yaml": "resources: [map.yaml]\n",
		"nameless/map.yaml":           "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.Run(t, "", "create", "work", "web", "-k", filepath.Join(dir, "prod"), "--cluster", "cluster1").Succeeds(t,
		"create work web in cluster cluster1")
	var work workv1.ManifestWork
	h.Get(t, clitest.WorksPath+"/web", &work)
	if got := string(work.Spec.Workload.Manifests[0].Raw); !strings.Contains(got, `"prod-settings"`) ||
		!strings.Contains(got, `"stage":"prod"`) {
		t.Errorf("manifest %s", got)
	}
	for folder, says := range map[string]string{"empty": "-k: ", "nameless": "missing metadata.name"} {
		h.Run(t, "", "create", "work", "web", "-k", filepath.Join(dir, folder), "--cluster", "cluster1").Fails(t, says, folder)
	}
}

// CA-31: with --overwrite, a work follows its placement; works that were made by name of the cluster are left alone.
func TestCreateWorkByPlacement(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	in := func(cluster string) string {
		return strings.Replace(clitest.WorksPath, "cluster1", cluster, 1) + "/web"
	}
	create := []string{"create", "work", "web", "-f", "-", "--placement", "team-a/web"}
	h.Run(t, clitest.ConfigMap, create...).Fails(t, `"web" not found`, "capstan get placements")
	h.PutPlacement(t, "team-a", "web")
	h.Run(t, clitest.ConfigMap, create...).Fails(t, "placement team-a/web selects no clusters", "capstan explain placement web --namespace team-a")
	h.PutPlacement(t, "team-a", "web", "cluster1", "cluster2")
	h.PutPlacement(t, "team-a", "other", "cluster9")
	h.Run(t, clitest.ConfigMap, append(create, "--dry-run")...).Succeeds(t, "namespace: cluster1", "namespace: cluster2")
	h.Run(t, clitest.ConfigMap, create...).Succeeds(t, "create work web in cluster cluster1\ncreate work web in cluster cluster2\n")
	h.Run(t, clitest.ConfigMap, "create", "work", "web", "-f", "-", "--cluster", "idle").Succeeds(t)

	h.PutPlacement(t, "team-a", "web", "cluster2", "cluster3")
	h.Run(t, clitest.ConfigMap, create...).Succeeds(t,
		"work web in cluster cluster2 already exists, with these manifests\ncreate work web in cluster cluster3\n")
	if !h.Has(in("cluster1")) {
		t.Error("it was taken off a cluster without --overwrite")
	}
	changed := strings.Replace(clitest.ConfigMap, "value", "other", 1)
	h.Run(t, changed, append(create, "--overwrite", "--dry-run")...).Succeeds(t, "would delete work web in cluster cluster1")
	h.Run(t, changed, append(create, "--overwrite")...).Succeeds(t,
		"update work web in cluster cluster2\nupdate work web in cluster cluster3\ndelete work web in cluster cluster1\n")
	if h.Has(in("cluster1")) || !h.Has(in("idle")) {
		t.Errorf("in cluster1: %v, made by name: %v", h.Has(in("cluster1")), h.Has(in("idle")))
	}
	h.PutPlacement(t, "team-a", "web")
	h.Run(t, changed, append(create, "--overwrite")...).Succeeds(t,
		"delete work web in cluster cluster2\ndelete work web in cluster cluster3\n")
	h.Remove(t, clitest.DecisionsPath+"/web-decision-1")
	h.Run(t, changed, append(create, "--overwrite")...).Fails(t, "has not been decided on yet")
}

// With --overwrite, a work of the same name that another placement has brought to its clusters stays there.
func TestOverwriteLeavesWorksOfOtherPlacements(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	h.PutPlacement(t, "team-a", "first", "cluster1")
	h.PutPlacement(t, "team-a", "second", "cluster2", "cluster3")
	create := func(placement string, flags ...string) clitest.Result {
		args := []string{"create", "work", "web", "-f", "-", "--placement", "team-a/" + placement}
		return h.Run(t, clitest.ConfigMap, append(args, flags...)...)
	}
	create("first").Succeeds(t, "create work web in cluster cluster1\n")
	create("second").Succeeds(t, "create work web in cluster cluster2\ncreate work web in cluster cluster3\n")
	h.PutPlacement(t, "team-a", "second", "cluster3")
	create("second", "--overwrite").Succeeds(t, "web in cluster cluster3 already exists", "delete work web in cluster cluster2\n")
	for cluster, stays := range map[string]bool{"cluster1": true, "cluster2": false, "cluster3": true} {
		if path := strings.Replace(clitest.WorksPath, "cluster1", cluster, 1) + "/web"; h.Has(path) != stays {
			t.Errorf("the work is in %s: %t", cluster, !stays)
		}
	}
}

// CA-31
func TestCreateWorkReplicaSet(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	const setPath = "/apis/work.open-cluster-management.io/v1alpha1/namespaces/team-a/manifestworkreplicasets/web"
	create := []string{"create", "work", "web", "-f", "-", "--placement", "team-a/web", "--replicaset"}
	h.Run(t, clitest.ConfigMap, append(create, "--dry-run")...).Succeeds(t, "kind: ManifestWorkReplicaSet", "name: web", "namespace: team-a")
	h.Run(t, clitest.ConfigMap, create...).Fails(t, `"web" not found`)
	h.PutPlacement(t, "team-a", "web", "cluster1")
	h.PutPlacement(t, "team-a", "more", "cluster1")
	h.Run(t, clitest.ConfigMap, create...).Succeeds(t, "create manifestworkreplicaset web in namespace team-a")
	h.Run(t, clitest.ConfigMap, create...).Succeeds(t, "already exists, with these manifests")
	changed := strings.Replace(clitest.ConfigMap, "value", "other", 1)
	h.Run(t, changed, create...).Fails(t, "ManifestWorkReplicaSet web in namespace team-a already exists", "--overwrite")

	var set workv1alpha1.ManifestWorkReplicaSet
	h.Get(t, setPath, &set)
	set.Spec.PlacementRefs[0].RolloutStrategy.Type = "Progressive"
	set.Spec.CascadeDeletionPolicy = "Foreground"
	h.Put(t, setPath, &set)
	h.Run(t, changed, append(create, "--overwrite")...).Succeeds(t, "update manifestworkreplicaset web in namespace team-a")
	h.Get(t, setPath, &set)
	if set.Spec.PlacementRefs[0].RolloutStrategy.Type != "Progressive" || set.Spec.CascadeDeletionPolicy != "Foreground" ||
		!strings.Contains(string(set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw), `"other"`) {
		t.Errorf("after --overwrite: %+v", set.Spec)
	}
	create[6] = "team-a/more"
	h.Run(t, changed, create...).Fails(t, "other manifests or placements")
	h.Run(t, changed, append(create, "--overwrite")...).Succeeds(t)
	set = workv1alpha1.ManifestWorkReplicaSet{}
	h.Get(t, setPath, &set)
	if len(set.Spec.PlacementRefs) != 1 || set.Spec.PlacementRefs[0].Name != "more" {
		t.Errorf("placements %+v", set.Spec.PlacementRefs)
	}
}
