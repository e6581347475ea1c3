package work_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
)

// CA-26
func TestGetWorks(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	for _, c := range []string{"cluster1", "cluster2"} {
		h.Put(t, strings.Replace(clitest.WorksPath, "cluster1", c, 1)+"/web", &workv1.ManifestWork{
			TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: c, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "another"}}},
		})
	}
	for _, output := range []string{"yaml", "json"} {
		if got := h.Run(t, "", "get", "works", "-o", output); strings.Contains(got.Out, "managedFields") {
			t.Errorf("nobody reads managedFields:\n%s", got.Out)
		}
	}
	h.PutClusters(t)
	h.Put(t, clitest.ClustersPath+"/idle", clitest.Cluster("idle", nil))
	h.Run(t, "", "get", "works").Succeeds(t, "ManifestWorks: 2", "Cluster: cluster1", "Cluster: cluster2")
	if got := h.Run(t, "", "get", "works", "--clusters", "cluster2", "-o", "table"); strings.Contains(got.Out, "cluster1") ||
		!strings.Contains(got.Out, "cluster2") {
		t.Errorf("of cluster2: %s", got.Out)
	}
	h.Run(t, "", "get", "works", "web", "-c", "cluster1", "-o", "yaml").Succeeds(t, "kind: ManifestWork\n", "namespace: cluster1")
	h.Run(t, "", "get", "works", "-c", "cluster1", "-o", "name").Succeeds(t, "manifestwork.work.open-cluster-management.io/web\n")
	h.Run(t, "", "get", "works", "gone").Fails(t, `"gone"`)
	h.Run(t, "", "get", "works", "gone", "--cluster", "cluster1").Fails(t, `"gone" not found`, "capstan get works")
	h.Run(t, "", "get", "works", "--clusters", "idle").Succeeds(t, "ManifestWorks: none")
	h.Run(t, "", "get", "works", "--clusters", "cluster1,misspelt").Fails(t, `"misspelt" not found`, "capstan get clusters")
	h.Run(t, "", "get", "works", "--clusters", "Bad/Name").Fails(t, `"Bad/Name"`, "small letters")
	h.Run(t, "", "get", "works", "web", "other").Fails(t, "accepts at most 1 arg")
}
