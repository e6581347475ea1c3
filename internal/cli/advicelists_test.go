package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// CA-04: what lists or shows objects, as errors advise, prints one with which the command does what it is to.
func TestAdviceLists(t *testing.T) {
	t.Parallel()
	file := writeManifest(t)
	for args, test := range map[string]struct {
		advice string
		listed string // in what the advice prints, with single spaces
		then   string // the command with what is listed; empty where only time or somebody else helps
	}{
		"get clusters gone":                       {"get clusters", "cluster1", "get clusters cluster1"},
		"get clusters gone cluster1":              {"get clusters", "cluster2", "get clusters cluster2 cluster1"},
		"get clustersets gone":                    {"get clustersets", "prod", "get clustersets prod"},
		"get clustersets gone prod":               {"get clustersets", "default", "get clustersets default prod"},
		"get works gone":                          {"get works", "web", "get works web"},
		"get works gone --clusters cluster1":      {"get works", "web", "get works web --clusters cluster1"},
		"get placements gone":                     {"get placements", "web", "get placements web"},
		"get placements gone --namespace team-a":  {"get placements", "web", "get placements web --namespace team-a"},
		"get addon gone":                          {"get addon", "hello", "get addon hello"},
		"addon enable --clusters cluster2":        {"get addon", "hello", "addon enable --names hello --clusters cluster2"},
		"addon enable --names x --clusters idle":  {"get addon", "hello", "addon enable --names hello --clusters idle"},
		"addon disable --names x --clusters idle": {"get addon", "hello", "addon disable --names hello --clusters cluster1"},
		"delete work web":                         {"get clusters", "cluster1", "delete work web --clusters cluster1"},
		"create work new -f " + file: {"get clusters", "cluster1",
			"create work new --clusters cluster1 -f " + file},
		"create work new --placement web -f " + file: {"get placements", "web",
			"create work new --placement team-a/web -f " + file},
		"create work new --clusters idle --dry-run=server -f " + file: {"get clusters idle", "idle", ""},
		"clusterset set eu --clusters cluster1": {"get clustersets eu -o yaml", "region: eu",
			"clusterset set prod --clusters cluster1"},
		"explain placement web --namespace team-a --cluster gone": {"get clusters", "cluster1",
			"explain placement web --namespace team-a --cluster cluster1"},
		"kubeconfig":                   {"get clusters", "cluster1", "kubeconfig cluster1"},
		"kubeconfig gone":              {"get clusters", "cluster1", "kubeconfig cluster1"},
		"proxy health --clusters gone": {"get clusters", "cluster1", "proxy health --clusters cluster1"},
		"get pods --placement web":     {"get placements", "web", "get pods --placement team-a/web"},
		"get pods --clusters gone":     {"get clusters", "cluster1", "get pods --clusters cluster1"},
		"get pods --clusters cluster2": {"proxy health", "cluster1 True True True", "get pods --clusters cluster1"},
	} {
		t.Run(test.advice+" after "+strings.ReplaceAll(args, file, "FILE"), func(t *testing.T) {
			t.Parallel()
			h := withAllKinds(t, file)
			refused := h.Run(t, "", strings.Fields(args)...)
			refused.Fails(t)
			shown := h.Follow(t, refused, test.advice)
			shown.Succeeds(t)
			if !strings.Contains(strings.Join(strings.Fields(shown.Out), " "), test.listed) {
				t.Errorf("%q is missing in:\n%s", test.listed, shown.Out)
			}
			if test.then != "" {
				h.Run(t, "", strings.Fields(test.then)...).Succeeds(t)
			}
		})
	}
}

// writeManifest writes a manifest to a file.
func writeManifest(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(clitest.ConfigMap), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// withPod is the API of a cluster with the pod web-0.
func withPod() *fakehub.ClusterAPI {
	return &fakehub.ClusterAPI{Collections: []fakehub.Collection{{
		GroupVersion: "v1",
		APIResource:  metav1.APIResource{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true},
		Columns:      []metav1.TableColumnDefinition{{Name: "Name"}},
		Objects:      []fakehub.Object{{Namespace: "default", Name: "web-0", Cells: []any{"web-0"}}},
	}}}
}

// withAllKinds is a hub with an object of each kind that commands list. Cluster cluster1 is connected, and has the work and the add-on.
func withAllKinds(t *testing.T, manifest string) clitest.Hub {
	t.Helper()
	h := clitest.NewHubWithClusters(t)
	h.Connect("cluster1", withPod())
	h.PutSet(t, "default")
	h.PutSet(t, "prod")
	h.Put(t, clitest.SetsPath+"/eu", &clusterv1beta2.ManagedClusterSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1beta2.GroupVersion.String(), Kind: "ManagedClusterSet"},
		ObjectMeta: metav1.ObjectMeta{Name: "eu"},
		Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: clusterv1beta2.ManagedClusterSelector{
			SelectorType:  clusterv1beta2.LabelSelector,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}},
		}},
	})
	h.PutPlacement(t, "team-a", "web", "cluster1")
	h.Handle("GET "+report.Path+"team-a/web", explained("web", true, "it is the only one"))
	h.PutCatalogue(t, "hello", nil)
	h.PutAddOn(t, "cluster1", "hello")
	h.PutAddOn(t, "cluster1", "cluster-proxy", metav1.Condition{Type: "Available", Status: metav1.ConditionTrue})
	h.Run(t, "", "create", "work", "web", "-f", manifest, "--clusters", "cluster1").Succeeds(t)
	return h
}

// CA-04: a placement that selects no cluster is explained, as errors about it advise, and the command works once it selects one.
func TestAdviceExplainsPlacements(t *testing.T) {
	t.Parallel()
	file := writeManifest(t)
	for args, placement := range map[string]string{
		"get pods --placement team-a/none":                      "none",
		"get pods --placement team-a/undecided":                 "undecided",
		"create work new --placement team-a/none -f " + file:    "none",
		"create work x --placement team-a/undecided -f " + file: "undecided",
	} {
		t.Run(strings.ReplaceAll(args, file, "FILE"), func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHubWithClusters(t)
			h.Connect("cluster1", withPod())
			h.PutPlacement(t, "team-a", "none")
			h.PutPlacement(t, "team-a", "undecided")
			h.Remove(t, clitest.DecisionsPath+"/undecided-decision-1")
			h.Handle("GET "+report.Path+"team-a/"+placement, explained(placement, false, "its labels do not match"))
			refused := h.Run(t, "", strings.Fields(args)...)
			refused.Fails(t)
			h.Follow(t, refused, "explain placement "+placement+" --namespace team-a").Succeeds(t, "its labels do not match")
			h.PutPlacement(t, "team-a", placement, "cluster1")
			h.Run(t, "", strings.Fields(args)...).Succeeds(t)
		})
	}
}

// explained is the report of a placement of team-a about cluster1.
func explained(placement string, selected bool, why string) http.HandlerFunc {
	clusters, selects := `"selected": 0`, "false"
	if selected {
		clusters, selects = `"selected": 1`, "true"
	}
	return fakehub.JSON(`{"placement": {"metadata": {"namespace": "team-a", "name": "` + placement + `"}},
		"funnel": {"fleet": 3, ` + clusters + `},
		"clusters": [{"clusterName": "cluster1", "selected": ` + selects + `, "reason": "` + why + `"}]}`)
}

// CA-04: where a cluster is missing, the command is advised that prints how one joins.
func TestAdviceToJoin(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Handle("POST /api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token",
		fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"secret"}}`))
	for _, args := range []string{"get clusters", "proxy health", "accept --clusters gone"} {
		advises := h.Run(t, "", strings.Fields(args)...)
		h.Follow(t, advises, "get token").Succeeds(t, "capstan join --hub-token secret --hub-apiserver "+h.URL)
	}
}

// CA-18: a hub that has accepted no cluster says how those that wait are seen and accepted, and then where their state is seen.
func TestAdviceToAcceptClusters(t *testing.T) {
	t.Parallel()
	h := withPending(t)
	h.Connect("pending", withPod())
	refused := h.Run(t, "", "get", "pods", "--all-clusters")
	refused.Fails(t)
	h.Follow(t, refused, "get clusters").Succeeds(t, "pending")
	accepted := h.Follow(t, refused, "accept --clusters CLUSTER,...", "CLUSTER,...", "pending")
	accepted.Succeeds(t)
	h.Follow(t, accepted, "get clusters").Succeeds(t, "pending")
	h.Run(t, "", "get", "pods", "--all-clusters").Succeeds(t, "web-0")
}

// CA-34: a deletion that its agent holds up says how to see whether that is there, and goes on without it.
func TestAdviceToDeleteByForce(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	h.Put(t, clitest.WorksPath+"/web", workInUse(nil))
	late := h.TimesOut(t, clitest.WorksPath, "", "delete", "work", "web", "--clusters", "cluster1")
	late.Fails(t, "--force does not wait for it")
	h.Follow(t, late, "get clusters cluster1").Succeeds(t, "cluster1")
	h.Run(t, "", "delete", "work", "web", "--clusters", "cluster1", "--force").Succeeds(t, "work web in cluster cluster1 is deleted")
}

// CA-31: a work that is being deleted is created again when it is gone, and the advice waits for that.
func TestAdviceToAwaitDeletion(t *testing.T) {
	t.Parallel()
	create := []string{"create", "work", "web", "--clusters", "cluster1", "-f", writeManifest(t)}
	h := clitest.NewHubWithClusters(t)
	h.Put(t, clitest.WorksPath+"/web", workInUse(&metav1.Time{Time: time.Now()}))
	refused := h.Run(t, "", create...)
	refused.Fails(t, "is being deleted")
	done := make(chan clitest.Result)
	go func() {
		done <- h.Follow(t, refused, "delete work web --cluster cluster1", "--cluster cluster1", "--cluster cluster1 --timeout 60")
	}()
	h.WaitForWatch(t, clitest.WorksPath)
	h.Remove(t, clitest.WorksPath+"/web")
	(<-done).Succeeds(t)
	h.Run(t, "", create...).Succeeds(t, "create work web in cluster cluster1")
}

// workInUse is a work in cluster1 whose agent has not let go of it.
func workInUse(deleted *metav1.Time) *workv1.ManifestWork {
	return &workv1.ManifestWork{
		TypeMeta: metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "cluster1", DeletionTimestamp: deleted,
			Finalizers: []string{"cluster.open-cluster-management.io/manifest-work-cleanup"}},
	}
}
