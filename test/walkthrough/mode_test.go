package walkthrough

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/realcluster"
)

// A Klusterlet changes its mode, among all that there are. Each time, the pods of the new mode run and no others, what the hub has for the
// cluster gets there, and the pod of a work stays. Whenever a mode comes back, the cluster has what it had in that mode: nothing of the
// other ones is left.
//
// KL-02 to KL-05
func TestSwitchMode(t *testing.T) {
	slow(t)
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	hub.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent")
	before := managed.Inventory(t)
	managed.join(t, hub.initialize(t), "cluster1", "--wait")
	hub.accept(t, "cluster1")
	applied := hub.createWork(t, managed, "cluster1")

	objects := map[operatorv1.InstallMode]realcluster.Inventory{}
	inModes := func(modes ...operatorv1.InstallMode) {
		for _, mode := range modes {
			passed := t.Run(string(mode), func(t *testing.T) { //nolint:paralleltest // it is the same agent
				managed.switchMode(t, mode)
				hub.reaches(t, managed, "cluster1")
				if now := managed.AwaitPod(t, "default", "hello"); now.UID != applied.UID {
					t.Errorf("the pod of the work has been replaced: %s is %s", applied.UID, now.UID)
				}
				if objects[mode] == nil {
					objects[mode] = withoutUIDs(managed.Inventory(t))
				}
				managed.awaitObjects(t, objects[mode])
			})
			if !passed {
				t.FailNow()
			}
		}
	}
	inModes(operatorv1.InstallModeDefault, operatorv1.InstallModeSingleton, operatorv1.InstallModeDefault)
	managed.storeForHosted(t, managed.klusterlet(t).Name)
	inModes(operatorv1.InstallModeHosted, operatorv1.InstallModeSingletonHosted, operatorv1.InstallModeHosted, operatorv1.InstallModeDefault)

	hub.capstan(t, "delete", "work", "hello", "--clusters", "cluster1", "--timeout", "60")
	managed.capstan(t, "unjoin", "--cluster-name", "cluster1", "--wait")
	managed.awaitNotServed(t, operatorv1.GroupVersion.WithResource("klusterlets"))
	managed.AwaitInventory(t, before)
}

// switchMode changes the mode of the Klusterlet, and waits until the pods of that mode run, and no others, and reach the hub.
func (c cluster) switchMode(t *testing.T, mode operatorv1.InstallMode) {
	t.Helper()
	klusterlet := c.klusterlet(t)
	c.patch(t, klusterlet, `{"spec": {"deployOption": {"mode": "`+string(mode)+`"}}}`)
	c.awaitStatus(t, klusterlet.Name, func(now *operatorv1.Klusterlet) error {
		if now.Status.ObservedGeneration < klusterlet.Generation {
			return fmt.Errorf("the status is that of generation %d, not of %d", now.Status.ObservedGeneration, klusterlet.Generation)
		}
		return nil
	})
	c.awaitAgentUp(t, klusterlet.Name)
	pods := agentPods
	if strings.HasPrefix(string(mode), string(operatorv1.InstallModeSingleton)) {
		pods = singletonPods
	}
	for _, namespace := range []string{fleet.NamespaceAgent, klusterlet.Name} {
		want := map[string]int{}
		if namespace == agentNamespace(klusterlet) {
			want = prefixed(klusterlet.Name+"-", pods)
		}
		c.Eventually(t, func(context.Context) error {
			if found := c.podNames(t, namespace); !maps.Equal(found, want) {
				return fmt.Errorf("namespace %s has the pods %v, not %v", namespace, found, want)
			}
			return nil
		})
	}
	c.AwaitGone(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace(klusterlet), Name: fleet.ConfigMapHubConnection}})
}

// storeForHosted stores what the agent of a Klusterlet needs to run as a hosted one in the cluster that it manages: a kubeconfig of that
// cluster, and its credentials for the hub.
func (c cluster) storeForHosted(t *testing.T, klusterlet string) {
	t.Helper()
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: klusterlet}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: klusterlet, Name: fleet.SecretExternalManagedKubeconfig},
			Data: map[string][]byte{fleet.KeyKubeconfig: readFile(t, c.Kubeconfig)}})
	for _, name := range []string{fleet.SecretBootstrapHubKubeconfig, fleet.SecretHubKubeconfig} {
		secret := &corev1.Secret{}
		if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: fleet.NamespaceAgent, Name: name}, secret); err != nil {
			t.Fatal(err)
		}
		c.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: klusterlet, Name: name}, Data: secret.Data})
	}
}

// awaitObjects waits until the cluster has the objects, and no others, whatever their UIDs.
func (c cluster) awaitObjects(t *testing.T, objects realcluster.Inventory) {
	t.Helper()
	c.Eventually(t, func(context.Context) error {
		if difference := objects.Compare(withoutUIDs(c.Inventory(t))); difference != "" {
			return errors.New("its objects are not those that it had in this mode before:\n" + difference)
		}
		return nil
	})
}

// withoutUIDs has the objects of an inventory, so that one that was created again is the same.
func withoutUIDs(inventory realcluster.Inventory) realcluster.Inventory {
	objects := realcluster.Inventory{}
	for name := range inventory {
		objects[name] = ""
	}
	return objects
}
