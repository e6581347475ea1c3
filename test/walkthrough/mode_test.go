package walkthrough

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/realcluster"
)

// A Klusterlet changes its mode, among all that there are. Each time, the pods of the new mode run and no others, what the hub has for the
// cluster gets there, and the pod of a work stays. The cluster has one credential for the hub, where the agent runs. Whenever a mode comes
// back, the cluster has what it had in that mode: nothing of the other ones is left, but what users have stored.
//
// KL-02 to KL-05, KL-28
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
				managed.awaitCredentials(t, agentNamespace(managed.klusterlet(t)))
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
	klusterlet := managed.klusterlet(t).Name
	managed.storeForHosted(t, klusterlet)
	inModes(operatorv1.InstallModeHosted, operatorv1.InstallModeSingletonHosted, operatorv1.InstallModeHosted)
	if agentNamespace(managed.klusterlet(t)) == klusterlet { // it is not where one mode alone is run once more
		managed.awaitStatus(t, klusterlet, func(k *operatorv1.Klusterlet) error {
			return saysUnused(k, fleet.NamespaceAgent+"/"+fleet.SecretBootstrapHubKubeconfig)
		})
		managed.copySecrets(t, klusterlet, fleet.NamespaceAgent, fleet.SecretHubKubeconfig)
		managed.awaitCredentials(t, klusterlet, fleet.NamespaceAgent)
	}
	inModes(operatorv1.InstallModeDefault)

	hub.deleteWork(t, "hello", "cluster1")
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
	c.copySecrets(t, fleet.NamespaceAgent, klusterlet, fleet.SecretBootstrapHubKubeconfig, fleet.SecretHubKubeconfig)
}

func (c cluster) copySecrets(t *testing.T, from, to string, names ...string) {
	t.Helper()
	for _, name := range names {
		secret := &corev1.Secret{}
		if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: from, Name: name}, secret); err != nil {
			t.Fatal(err)
		}
		c.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: to, Name: name}, Data: secret.Data})
	}
}

// awaitCredentials waits until the credential of an agent for its hub is in the namespaces, and in no others.
func (c cluster) awaitCredentials(t *testing.T, namespaces ...string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		secrets := &corev1.SecretList{}
		if err := c.Client.List(ctx, secrets, client.MatchingFields{metav1.ObjectNameField: fleet.SecretHubKubeconfig}); err != nil {
			return err
		}
		var found []string
		for i := range secrets.Items {
			found = append(found, secrets.Items[i].Namespace)
		}
		if slices.Sort(found); !slices.Equal(found, slices.Sorted(slices.Values(namespaces))) {
			return fmt.Errorf("a credential for the hub is in the namespaces %v, not in %v", found, namespaces)
		}
		return nil
	})
}

// saysUnused is an error unless the Klusterlet says that nothing uses the Secret.
func saysUnused(k *operatorv1.Klusterlet, secret string) error {
	applied := meta.FindStatusCondition(k.Status.Conditions, fleet.ConditionApplied)
	if applied == nil || !strings.Contains(applied.Message, "nothing uses Secret "+secret) {
		return fmt.Errorf("the conditions do not say that nothing uses Secret %s: %v", secret, k.Status.Conditions)
	}
	return nil
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
