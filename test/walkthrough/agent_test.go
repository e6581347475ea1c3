package walkthrough

import (
	"strings"
	"testing"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// An agent comes back after what happens to clusters, is upgraded, and joins again; meanwhile what it has applied stays as it is.
//
// KL-02, KL-30, KL-31, CA-41
func TestAgent(t *testing.T) {
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	hub.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent")
	initialized := hub.initialize(t)
	managed.join(t, initialized, "cluster1", "--wait")
	hub.accept(t, "cluster1")
	applied := hub.createWork(t, managed, "cluster1")
	for _, event := range []struct {
		name    string
		happens func(*testing.T)
	}{
		{"all pods are killed", func(t *testing.T) {
			managed.killPods(t, fleet.NamespaceAgent, fleet.NamespaceOperators)
			managed.comesBack(t, fleet.NamespaceAgent, fleet.NamespaceOperators)
		}},
		{"the node is drained", func(t *testing.T) { drainAgent(t, managed) }},
		{"the programs of the node are killed", func(t *testing.T) { restartNode(t, managed) }},
		{"the agent is upgraded", func(t *testing.T) { upgradeAgent(t, managed) }},
		{"the namespace is deleted", func(t *testing.T) {
			managed.loseNamespace(t, fleet.NamespaceAgent)
			managed.awaitKlusterlet(t, "klusterlet", "Applied=True", "HubConnectionDegraded=True:bootstrap-hub-kubeconfig")
			// Of another version, the agent would be rolled out while it joins, and ask twice: each pod has a key of its own.
			flag, file := tagged(t, "next")
			managed.join(t, initialized, "cluster1", flag, file)
			refused := hub.refused(t, "accept", "--clusters", "cluster1")
			says(t, refused, "the same agent, which has lost its credential, or an impostor", fleet.ClusterUser("cluster1", "UID"))
			row := strings.Fields(managed.follow(t, refused,
				"get klusterlets --output custom-columns=CLUSTER:.spec.clusterName,UID:.metadata.uid"))
			says(t, refused, "capstan accept --clusters cluster1 --requesters REQUEST")
			_, request, _ := strings.Cut(refused, fleet.ClusterUser("cluster1", row[len(row)-1])+" (CSR ")
			request, _, _ = strings.Cut(request, " ")
			hub.accept(t, "cluster1", "--requesters", request)
		}},
	} {
		passed := t.Run(event.name, func(t *testing.T) { //nolint:paralleltest // they happen to the same agent
			event.happens(t)
			managed.awaitAgentUp(t, "klusterlet")
			hub.awaitAvailable(t, "cluster1")
			hub.reaches(t, managed, "cluster1")
			if now := managed.AwaitPod(t, "default", "hello"); now.UID != applied.UID {
				t.Errorf("the pod of the work has been replaced: %s is %s", applied.UID, now.UID)
			}
		})
		if !passed {
			t.FailNow()
		}
	}
}

// drainAgent evicts the agent from its node.
func drainAgent(t *testing.T, managed cluster) {
	t.Helper()
	managed.cordon(t, managed.Name, true)
	for _, pod := range managed.Pods(t, fleet.NamespaceAgent, nil) {
		if err := managed.evict(t.Context(), &pod); err != nil {
			t.Errorf("evict %s: %v", pod.Name, err)
		}
	}
	managed.awaitKlusterlet(t, "klusterlet", "Available=False:unschedulable", "WorkDesiredDegraded=True:unschedulable")
	managed.cordon(t, managed.Name, false)
}

// upgradeAgent upgrades the agent to images with another tag.
func upgradeAgent(t *testing.T, managed cluster) {
	t.Helper()
	managed.tagImage(t, "capstan-agent", "next")
	flag, file := tagged(t, "next")
	says(t, managed.capstan(t, "upgrade", "klusterlet", "--wait", flag, file), "upgraded completed successfully")
	managed.runsImages(t, "next", fleet.NamespaceAgent, fleet.NamespaceOperators)
}

// awaitKlusterlet waits until a Klusterlet has conditions, as haveConditions takes them.
func (c cluster) awaitKlusterlet(t *testing.T, name string, conditions ...string) {
	t.Helper()
	c.awaitStatus(t, name, func(k *operatorv1.Klusterlet) error { return haveConditions(k.Status.Conditions, conditions...) })
}
