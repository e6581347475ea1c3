package walkthrough

import (
	"context"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// hubPods are the Deployments of a hub, by which users know its pods.
var hubPods = map[string]int{
	"cluster-manager-registration-controller": 1, "cluster-manager-registration-webhook": 1, "cluster-manager-work-webhook": 1,
	"cluster-manager-addon-webhook": 1, "cluster-manager-placement-controller": 1, "cluster-manager-addon-manager-controller": 1,
	"cluster-manager-work-controller": 1,
}

// A hub is installed with one command, works, comes back after what happens to clusters, and leaves nothing when it is removed.
//
// CA-10, CA-12, CA-20, CM-02, CM-17, HC-02
func TestInitAndClean(t *testing.T) {
	t.Parallel()
	hub := start(t, "hub")[0]
	hub.importImages(t, "capstan-hub")
	before := hub.Inventory(t)
	says(t, hub.initialize(t), "The multicluster hub control plane has been initialized successfully!", "capstan join --hub-token")
	if pods := hub.podNames(t, fleet.NamespaceHub); !maps.Equal(pods, hubPods) {
		t.Errorf("the hub has the pods %v", pods)
	}
	if pods := hub.podNames(t, fleet.NamespaceOperators); !maps.Equal(pods, map[string]int{"cluster-manager": 3}) {
		t.Errorf("the operator has the pods %v", pods)
	}
	hub.awaitAccepted(t, "c0")
	namespaces := []string{"c0"}
	for _, event := range []struct {
		name    string
		happens func(*testing.T, cluster)
	}{
		{"all pods are killed", func(t *testing.T, hub cluster) {
			hub.killPods(t, fleet.NamespaceHub, fleet.NamespaceOperators)
			hub.comesBack(t, fleet.NamespaceHub, fleet.NamespaceOperators)
		}},
		{"the node is drained", drainHub},
		{"the programs of the node are killed", restartNode},
		{"the namespace is deleted", func(t *testing.T, hub cluster) { hub.loseNamespace(t, fleet.NamespaceHub) }},
		{"the hub is upgraded", upgradeHub},
	} {
		passed := t.Run(event.name, func(t *testing.T) { //nolint:paralleltest // they happen to the same hub
			event.happens(t, hub)
			hub.awaitHubUp(t)
			name := fmt.Sprintf("c%d", len(namespaces))
			hub.awaitAccepted(t, name)
			namespaces = append(namespaces, name)
		})
		if !passed {
			t.FailNow()
		}
	}
	hub.deleteDeployment(t, fleet.NamespaceOperators, "cluster-manager")
	says(t, hub.interrupted(t, "clustermanagers", "clean"), "open-cluster-management/cluster-manager, does not run", "--force does without it")
	hub.clean(t, hub, namespaces, "--force")
	hub.AwaitInventory(t, before)
}

// clean takes the hub out of the cluster. It removes the namespaces of clusters, where the API of the hub is, or names what keeps them,
// which is then for the user to delete.
func (c cluster) clean(t *testing.T, api cluster, namespaces []string, flags ...string) {
	t.Helper()
	output := c.output(t, append([]string{"clean"}, flags...)...)
	says(t, output, "cleaned up successfully")
	c.isNoHub(t)
	api.isNoHub(t)
	for _, name := range namespaces {
		err := api.Client.Get(t.Context(), types.NamespacedName{Name: name}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		says(t, output, "Namespace "+name+" stays: it has ")
		api.deleteNamespace(t, name)
	}
}

// isNoHub makes sure that a user of kubectl finds nothing of a hub.
func (c cluster) isNoHub(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{fleet.NamespaceHub, fleet.NamespaceOperators} {
		if pods := c.podNames(t, namespace); len(pods) > 0 {
			t.Errorf("namespace %s has the pods %v", namespace, pods)
		}
	}
	c.awaitNotServed(t, operatorv1.GroupVersion.WithResource("clustermanagers"))
}

// awaitAccepted waits until the webhooks let a cluster be created, without which the API server would refuse it, and the controllers have
// made its namespace.
func (c cluster) awaitAccepted(t *testing.T, name string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		managed := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
		managed.Name = name
		return client.IgnoreAlreadyExists(c.Client.Create(ctx, managed))
	})
	c.Eventually(t, func(ctx context.Context) error {
		return c.Client.Get(ctx, types.NamespacedName{Name: name}, &corev1.Namespace{})
	})
}

// drainHub evicts the hub from its only node: nothing is refused, so that `kubectl drain` ends. The operator, whose pods are the last, says
// why the hub does not come back.
func drainHub(t *testing.T, hub cluster) {
	t.Helper()
	hub.cordon(t, hub.Name, true)
	for _, pod := range hub.Pods(t, fleet.NamespaceHub, nil) {
		if err := hub.evict(t.Context(), &pod); err != nil {
			t.Errorf("evict %s: %v", pod.Name, err)
		}
	}
	hub.awaitManager(t, func(manager *operatorv1.ClusterManager) error {
		return haveConditions(manager.Status.Conditions, "HubRegistrationDegraded=True:unschedulable")
	})
	for _, pod := range hub.Pods(t, fleet.NamespaceOperators, nil) {
		if err := hub.evict(t.Context(), &pod); err != nil {
			t.Errorf("evict %s: %v", pod.Name, err)
		}
	}
	hub.Eventually(t, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := hub.Client.List(ctx, pods, client.InNamespace(fleet.NamespaceOperators)); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != "" {
				return fmt.Errorf("%s is still on node %s", pod.Name, pod.Spec.NodeName)
			}
		}
		return nil
	})
	hub.cordon(t, hub.Name, false)
}

// restartNode kills the programs of the node, which are started again.
func restartNode(t *testing.T, c cluster) {
	t.Helper()
	c.Restart(t, "kube-apiserver")
	c.Restart(t, "kubelet")
	c.Eventually(t, func(context.Context) error {
		_, err := c.Clientset.Discovery().ServerVersion()
		return err
	})
}

// upgradeHub upgrades the hub to images with another tag.
func upgradeHub(t *testing.T, hub cluster) {
	t.Helper()
	hub.tagImage(t, "capstan-hub", "next")
	flag, file := tagged(t, "next")
	says(t, hub.capstan(t, "upgrade", "clustermanager", "--wait", flag, file), "upgraded completed successfully")
	hub.runsImages(t, "next", fleet.NamespaceHub, fleet.NamespaceOperators)
}
