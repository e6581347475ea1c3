package framework

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// MergePatch patches an object.
func MergePatch(t *testing.T, c client.Client, o client.Object, patch string) {
	t.Helper()
	if err := c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// DeleteCluster deletes a cluster, and returns it as it was.
func DeleteCluster(t *testing.T, c client.Client, name string) *clusterv1.ManagedCluster {
	t.Helper()
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	return mc
}
