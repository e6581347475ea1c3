package work_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
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

// A work that was there before, by name of the cluster or from another placement, gets the manifests, and is left alone when the cluster is
// not selected any more, whatever its manifests were.
func TestOverwriteAdoptsNoWork(t *testing.T) {
	t.Parallel()
	changed := strings.Replace(clitest.ConfigMap, "value", "other", 1)
	for name, test := range map[string]struct {
		made     []string // where the work was made
		manifest string
		label    string
	}{
		"by name, the same":                 {[]string{"--cluster", "cluster1"}, changed, ""},
		"by name, another":                  {[]string{"--cluster", "cluster1"}, clitest.ConfigMap, ""},
		"by another placement, the same":    {[]string{"--placement", "team-a/first"}, changed, "team-a.first"},
		"by another placement, and another": {[]string{"--placement", "team-a/first"}, clitest.ConfigMap, "team-a.first"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHubWithClusters(t)
			h.PutPlacement(t, "team-a", "first", "cluster1")
			h.Run(t, test.manifest, append([]string{"create", "work", "web", "-f", "-"}, test.made...)...).Succeeds(t)
			overwrite := []string{"create", "work", "web", "-f", "-", "--placement", "team-a/web", "--overwrite"}
			h.PutPlacement(t, "team-a", "web", "cluster1", "cluster2")
			got := h.Run(t, changed, overwrite...)
			got.Succeeds(t, "create work web in cluster cluster2")
			const stays = "Work web in cluster cluster1 was there before placement team-a/web brought it, and stays"
			if !strings.Contains(got.ErrOut, stays) || strings.Contains(got.ErrOut, "cluster2") {
				t.Errorf("it says %q", got.ErrOut)
			}
			h.PutPlacement(t, "team-a", "web", "cluster2")
			h.Run(t, changed, overwrite...).Succeeds(t)
			var work workv1.ManifestWork
			h.Get(t, clitest.WorksPath+"/web", &work)
			label, manifest := work.Labels["capstan.io/placement"], string(work.Spec.Workload.Manifests[0].Raw)
			if label != test.label || !strings.Contains(manifest, `"other"`) {
				t.Errorf("label %q, manifest %s", label, manifest)
			}
			work.Labels = map[string]string{"capstan.io/placement": "team-a.web"}
			h.Put(t, clitest.WorksPath+"/web", &work)
			h.Run(t, changed, overwrite...).Succeeds(t, "delete work web in cluster cluster1")
		})
	}
}

// Works are deleted by decisions that tell all that the placement selects, and stay the same: a scheduler writes them one after another.
func TestOverwriteDeletesByStableDecisions(t *testing.T) {
	t.Parallel()
	satisfied := func(p *clusterv1beta1.Placement) *metav1.Condition { return &p.Status.Conditions[0] }
	for name, test := range map[string]struct {
		placement func(*clusterv1beta1.Placement)
		uid       types.UID                        // of whose decisions these are
		then      []clusterv1beta1.ClusterDecision // what the decision names when it is read again
		want      string                           // nothing if the work is deleted
	}{
		"all are written":                       {},
		"a scheduler that writes no generation": {placement: func(p *clusterv1beta1.Placement) { p.Generation = 7 }},
		"somebody else decides": {placement: func(p *clusterv1beta1.Placement) {
			p.Annotations = map[string]string{"cluster.open-cluster-management.io/experimental-scheduling-disable": "true"}
			p.Status = clusterv1beta1.PlacementStatus{}
		}},
		"the placement is new": {placement: func(p *clusterv1beta1.Placement) { p.Status = clusterv1beta1.PlacementStatus{} },
			want: "is being decided on"},
		"the status is that of another spec": {placement: func(p *clusterv1beta1.Placement) {
			p.Generation, satisfied(p).ObservedGeneration = 2, 1
		}, want: "is being decided on"},
		"one cluster is in no decision": {placement: func(p *clusterv1beta1.Placement) { p.Status.NumberOfSelectedClusters = 2 },
			want: "is being decided on"},
		"the decisions change": {then: []clusterv1beta1.ClusterDecision{{ClusterName: "cluster1"}}, want: "is being decided on"},
		"the decisions are those of a placement that is gone": {placement: func(p *clusterv1beta1.Placement) { p.UID = "new" }, uid: "old",
			want: "has not been decided on yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHubWithClusters(t)
			create := []string{"create", "work", "web", "-f", "-", "--placement", "team-a/web"}
			h.PutPlacement(t, "team-a", "web", "cluster1", "cluster2")
			h.Run(t, clitest.ConfigMap, create...).Succeeds(t)
			h.PutPlacement(t, "team-a", "web", "cluster2")
			if test.placement != nil {
				var placement clusterv1beta1.Placement
				h.Get(t, clitest.PlacementsPath+"/web", &placement)
				test.placement(&placement)
				h.Put(t, clitest.PlacementsPath+"/web", &placement)
			}
			var decision clusterv1beta1.PlacementDecision
			h.Get(t, clitest.DecisionsPath+"/web-decision-1", &decision)
			if test.uid != "" {
				decision.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1beta1.GroupVersion.String(), Kind: "Placement",
					Name: "web", UID: test.uid, Controller: ptr.To(true)}}
				h.Put(t, clitest.DecisionsPath+"/web-decision-1", &decision)
			}
			if test.then != nil {
				reads := 0
				h.Handle("GET "+clitest.DecisionsPath, func(w http.ResponseWriter, r *http.Request) {
					if reads++; reads > 1 {
						decision.Status.Decisions = test.then
					}
					content, err := json.Marshal(clusterv1beta1.PlacementDecisionList{Items: []clusterv1beta1.PlacementDecision{decision}})
					if err != nil {
						t.Error(err)
					}
					fakehub.JSON(string(content))(w, r)
				})
			}
			got := h.Run(t, clitest.ConfigMap, append(create, "--overwrite")...)
			if test.want != "" {
				got.Fails(t, "placement team-a/web "+test.want)
			} else {
				got.Succeeds(t, "delete work web in cluster cluster1")
			}
			if stays := h.Has(clitest.WorksPath + "/web"); stays != (test.want != "") {
				t.Errorf("the work is on the cluster: %t", stays)
			}
		})
	}
}

// Works are deleted after the others are delivered, if the decisions are still the same then, and the works are still the placement's.
func TestOverwriteDeletesLast(t *testing.T) {
	t.Parallel()
	mine := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster1"}}
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, h clitest.Hub)
		code      int
		says      string
		stays     bool
	}{
		"nothing happens": {meanwhile: func(*testing.T, clitest.Hub) {}},
		"the agent reports on the work that is deleted": {meanwhile: func(_ *testing.T, h clitest.Hub) {
			h.Conflict("DELETE "+clitest.WorksPath+"/web", 1)
		}},
		"the cluster is selected again": {meanwhile: func(t *testing.T, h clitest.Hub) {
			t.Helper()
			var decision clusterv1beta1.PlacementDecision
			h.Get(t, clitest.DecisionsPath+"/web-decision-1", &decision)
			decision.Status.Decisions = append(decision.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: "cluster1"})
			h.OnWrite(func() { h.PutLocked(t, clitest.DecisionsPath+"/web-decision-1", &decision) })
		}, code: 1, says: "the decisions of placement team-a/web have changed meanwhile", stays: true},
		"the work is made somebody else's": {meanwhile: func(t *testing.T, h clitest.Hub) {
			t.Helper()
			h.OnWrite(func() { h.PutLocked(t, clitest.WorksPath+"/web", mine) })
		}, says: "Work web in cluster cluster1 stays: it is no more the one", stays: true},
		"the others do not get it": {meanwhile: func(_ *testing.T, h clitest.Hub) {
			h.Handle("POST "+worksOf("cluster2"), fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not create works"))
		}, code: 1, says: "Work web stays in 1 cluster that placement team-a/web does not select any more", stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHubWithClusters(t)
			create := []string{"create", "work", "web", "-f", "-", "--placement", "team-a/web", "--overwrite"}
			h.PutPlacement(t, "team-a", "web", "cluster1")
			h.Run(t, clitest.ConfigMap, create...).Succeeds(t)
			h.PutPlacement(t, "team-a", "web", "cluster2")
			test.meanwhile(t, h)
			got := h.Run(t, clitest.ConfigMap, create...)
			if got.Code != test.code || !strings.Contains(got.ErrOut, test.says) {
				t.Errorf("%+v, want exit code %d and %q", got, test.code, test.says)
			}
			if stays := h.Has(clitest.WorksPath + "/web"); stays != test.stays {
				t.Errorf("the work is in cluster1: %t", stays)
			}
		})
	}
}

// Only clusters that a placement of the namespace could have selected get a work, whoever wrote the decision; the others keep what they
// have.
func TestForgedDecisions(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	create := []string{"create", "work", "web", "-f", "-", "--placement", "team-a/web", "--overwrite"}
	h.PutPlacement(t, "team-a", "web", "cluster1", "cluster2", "idle", "gone")
	h.Run(t, clitest.ConfigMap, create...).Succeeds(t, "create work web in cluster cluster2")
	h.PutSet(t, "global") // of clusters with its label from now on
	h.Remove(t, clitest.ClustersPath+"/gone")
	for name, accepted := range map[string]bool{"cluster1": true, "idle": false} {
		member := clitest.Cluster(name, map[string]string{"cluster.open-cluster-management.io/clusterset": "global"}, "HubAcceptedManagedCluster")
		member.Spec.HubAcceptsClient = accepted
		h.Put(t, clitest.ClustersPath+"/"+name, member)
	}
	got := h.Run(t, strings.Replace(clitest.ConfigMap, "value", "other", 1), create...)
	if got.Code != 1 || got.Out != "update work web in cluster cluster1\n" {
		t.Errorf("%+v", got)
	}
	const unbound = "cluster2 (it is in no ManagedClusterSet with a ManagedClusterSetBinding in namespace team-a), "
	for _, says := range []string{
		"Warning: placement team-a/web: 3 clusters of its decisions passed over: " + unbound +
			"gone (there is no such ManagedCluster), idle (it is denied).\n",
		"placement team-a/web: 2 clusters of its decisions passed over: " + unbound +
			"idle (it is denied). A hub with --trust-placement-decisions",
	} {
		if !strings.Contains(got.ErrOut, says) {
			t.Errorf("it says %q, want %q", got.ErrOut, says)
		}
	}
	if len(h.Requests("DELETE")) > 0 {
		t.Errorf("deleted %+v", h.Requests("DELETE"))
	}
	for _, path := range []string{clitest.ClustersPath + "/cluster1", clitest.SetsPath + "/global", clitest.BindingsPath} {
		h.Handle("GET "+path, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not read "+path))
		h.Run(t, clitest.ConfigMap, create...).Fails(t, "you may not read "+path,
			"the rights to list managedclustersetbindings in namespace team-a, and to get managedclustersets and managedclusters")
	}
}

// CA-31: clusters that are left out are named in the error, but for those that the hub is about to set up, and those that are gone or
// going.
func TestLeftOutClusters(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	create := []string{"create", "work", "web", "-f", "-", "--placement", "team-a/web"}
	h.PutPlacement(t, "team-a", "web", "cluster1", "cluster2", "going", "gone")
	h.Put(t, clitest.ClustersPath+"/cluster2", clitest.AcceptedCluster("cluster2"))
	going := clitest.AcceptedCluster("going", "HubAcceptedManagedCluster")
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	h.Put(t, clitest.ClustersPath+"/going", going)
	h.Remove(t, clitest.ClustersPath+"/gone")
	got := h.Run(t, clitest.ConfigMap, create...)
	got.Succeeds(t, "create work web in cluster cluster1\n")
	if !strings.Contains(got.ErrOut, "3 clusters of its decisions passed over: cluster2 (") {
		t.Errorf("it does not say which clusters it leaves out: %s", got.ErrOut)
	}
	h.Remove(t, clitest.BindingsPath+"/global")
	h.Run(t, clitest.ConfigMap, create...).Fails(t, "placement team-a/web selects no clusters that count, with 4 clusters of its decisions "+
		"passed over: cluster1, cluster2, going (it is in no ManagedClusterSet")
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
