package walkthrough

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

const (
	// ocmRegistry is where images of Open Cluster Management seem to come from.
	ocmRegistry = "ocm.example.com"
	ocmTag      = "v1.2.1"
)

// A hub and a cluster that Open Cluster Management has installed, with its own operators and programs, move to Capstan as
// docs/migrating.md says: the hub first, with which the agents go on, then the agent. What works and add-ons have applied stays all the
// while, and Capstan removes all of it in the end, but for what clusteradm has published.
//
// CA-41
func TestMigration(t *testing.T) {
	slow(t)
	t.Parallel()
	const name = "cluster1"
	clusters := start(t, "hub", name)
	hub, managed := clusters[0], clusters[1]
	hub.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent")
	hub.importOCM(t, "registration-operator", "registration", "work", "placement", "addon")
	managed.importOCM(t, "registration-operator", "registration", "work")
	hubBefore, before := hub.Inventory(t), managed.Inventory(t)

	flag, file := tagged(t, ocmTag)
	theirs := []string{"--image-registry", ocmRegistry, flag, file}
	says(t, hub.clusteradm(t, "init", append(theirs, "--wait")...), "The multicluster hub control plane has been initialized successfully!")
	joinByClusteradm(t, hub, managed, name, theirs)
	pod := deployByClusteradm(t, hub, managed, name)
	hub.runsImagesOf(t, ocmRegistry+"/", fleet.NamespaceOperators, fleet.NamespaceHub)

	flag, file = tagged(t, tag)
	hub.capstan(t, "upgrade", "clustermanager", "--wait", flag, file)
	hub.awaitImages(t, "capstan-hub")
	hub.awaitHubUp(t)
	hub.goesOn(t, managed, name, pod)
	managed.runsImagesOf(t, ocmRegistry+"/", fleet.NamespaceOperators, fleet.NamespaceAgent)

	managed.capstan(t, "upgrade", "klusterlet", "--wait", flag, file)
	managed.awaitImages(t, "capstan-agent")
	hub.goesOn(t, managed, name, pod)

	undeploy(t, hub, managed, name)
	says(t, managed.capstan(t, "unjoin", "--cluster-name", name, "--wait"), "The status of mcl "+name+" will be unknown in the hub cluster")
	managed.AwaitInventory(t, before)
	hub.forget(t, name)
	hub.clean(t, hub, []string{name}, "--wait")
	hub.deleteClusterInfo(t)
	hub.AwaitInventory(t, hubBefore)
}

// importOCM gives the node images of programs of Open Cluster Management.
func (c cluster) importOCM(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		path, err := env.Binary("ocm/" + program)
		if err != nil {
			t.Fatal(err)
		}
		image := program
		if program == "addon" {
			image = "addon-manager"
		}
		c.ImportProgram(t, ocmRegistry+"/"+image+":"+ocmTag, path)
	}
}

// goesOn makes sure that a cluster is available, gets what the hub has for it, and still has the pod that a work has made before.
func (c cluster) goesOn(t *testing.T, managed cluster, name string, pod *corev1.Pod) {
	t.Helper()
	c.awaitAvailable(t, name)
	c.reaches(t, managed, name)
	says(t, c.capstan(t, "get", "works", "--clusters", name), "hello", "placed")
	managed.awaitConfigMap(t, "greeting")
	if now := managed.AwaitPod(t, "default", "hello"); now.UID != pod.UID {
		t.Errorf("the pod of the work has the UID %s, and had %s", now.UID, pod.UID)
	}
}
