package hubapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclustersets"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
)

// CA-30, CA-31: a command that changes an object of a newer hub leaves the fields alone that it does not know, and writes numbers as they
// are.
func TestChangeLeavesUnknownFields(t *testing.T) {
	t.Parallel()
	h := fakehub.New(t)
	const sets = "/apis/cluster.open-cluster-management.io/v1beta2/managedclustersets/prod"
	putJSON(t, h, sets, `{"apiVersion":"cluster.open-cluster-management.io/v1beta2","kind":"ManagedClusterSet","metadata":{"name":"prod"},
		"spec":{"newer":{"a":1},"clusterSelector":{"selectorType":"ExclusiveClusterSetLabel","newer":2}},"newer":[{"b":9007199254740993}]}`)
	err := hubapi.Change(t.Context(), h.Client(t).Client(managedclustersets.Resource), "prod",
		func(set *clusterv1beta2.ManagedClusterSet) (bool, error) {
			set.Spec.ClusterSelector.SelectorType = clusterv1beta2.LabelSelector
			set.Spec.ManagedNamespaces = []clusterv1beta2.ManagedNamespaceConfig{{Name: "web"}}
			set.Labels = map[string]string{"x": "y"}
			return true, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, h, sets, `{"apiVersion":"cluster.open-cluster-management.io/v1beta2","kind":"ManagedClusterSet",
		"metadata":{"name":"prod","labels":{"x":"y"},"resourceVersion":"2"},
		"spec":{"newer":{"a":1},"clusterSelector":{"selectorType":"LabelSelector","newer":2},"managedNamespaces":[{"name":"web"}]},
		"newer":[{"b":9007199254740993}]}`)

	const work = "/apis/work.open-cluster-management.io/v1/namespaces/cluster1/manifestworks/web"
	putJSON(t, h, work, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"web","namespace":"cluster1"},
		"spec":{"newer":true,"deleteOption":{"propagationPolicy":"Orphan"},
		"workload":{"manifests":[{"kind":"ConfigMap","big":9007199254740993,"none":null}]}}}`)
	err = hubapi.Change(t.Context(), h.Client(t).Client(manifestworks.Resource).Namespace("cluster1"), "web",
		func(work *workv1.ManifestWork) (bool, error) {
			work.Spec.DeleteOption = nil
			return true, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, h, work, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork",
		"metadata":{"name":"web","namespace":"cluster1","resourceVersion":"4"},
		"spec":{"newer":true,"workload":{"manifests":[{"kind":"ConfigMap","big":9007199254740993,"none":null}]}}}`)
}

func putJSON(t *testing.T, h *fakehub.Hub, path, content string) {
	t.Helper()
	h.Put(t, path, &unstructured.Unstructured{Object: decodeJSON(t, content)})
}

func wantJSON(t *testing.T, h *fakehub.Hub, path, want string) {
	t.Helper()
	got := &unstructured.Unstructured{}
	h.Get(t, path, got)
	if diff := cmp.Diff(decodeJSON(t, want), got.Object); diff != "" {
		t.Error(diff)
	}
}

func decodeJSON(t *testing.T, content string) (object map[string]any) {
	t.Helper()
	if err := utiljson.Unmarshal([]byte(content), &object); err != nil {
		t.Fatal(err)
	}
	return object
}
