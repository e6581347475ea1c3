package framework

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Merge is a merge patch.
func Merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// AcceptAll makes clusters that are accepted, without agents.
func AcceptAll(t *testing.T, clusters ...string) {
	t.Helper()
	admin := Hub.Client(t)
	for _, cluster := range clusters {
		Create(t, admin, AcceptedCluster(cluster))
	}
	for _, cluster := range clusters {
		AwaitHubAccepted(t, admin, cluster, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	}
}
