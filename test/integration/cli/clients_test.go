package cli

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CA-20 CA-22 CA-28: a standalone hub has what clients look for on a hub that an operator installed. It has no ClusterManager, and
// one that a user creates goes when it is deleted, though there is no operator.
func TestWhatClientsLookFor(t *testing.T) {
	t.Parallel()
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	scheme := env.Scheme()
	if err := operatorv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: fleet.NamespaceHub}, &corev1.Namespace{}); err != nil {
		t.Error(err)
	}
	managers := &operatorv1.ClusterManagerList{}
	if err := c.List(t.Context(), managers); err != nil || len(managers.Items) > 0 {
		t.Errorf("ClusterManagers %v, %v", managers.Items, err)
	}
	manager := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	framework.Create(t, c, manager)
	if err := c.Delete(t.Context(), manager); err != nil {
		t.Error(err)
	}
	framework.AwaitGone(t, c, manager)

	framework.Hub.Capstan(t, "", "get", "hub-info").Succeeds(t, "Hub: standalone, version ",
		"clustermanagers.operator.open-cluster-management.io: installed [*v1]", "Controller: in the process of the hub",
		"managedclusters.cluster.open-cluster-management.io: installed [*v1]", "DefaultClusterSet: true")
	framework.Hub.Capstan(t, "", "clean", "--dry-run").Ends(t, 1, "runs no pods", "it is a standalone hub")
	framework.Managed.Capstan(t, "", "get", "hub-info").Ends(t, 1, "is not an Open Cluster Management hub")
}
