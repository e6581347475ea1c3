package walkthrough

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// The command line of Open Cluster Management makes a hub and a managed cluster with our images, and works with them. That of Capstan
// upgrades both to what it would have installed. Then they go back, and clusteradm takes them away. What runs on the cluster goes on all
// the while.
//
// CA-23, CA-26, CA-27, CA-28, CA-41, HC-02, HC-06
func TestClusteradm(t *testing.T) {
	slow(t)
	t.Parallel()
	const name = "cluster1"
	clusters := start(t, "hub", name)
	hub, managed := clusters[0], clusters[1]
	for _, cluster := range clusters {
		cluster.importImages(t, "capstan-hub", "capstan-agent", "registration-operator")
	}
	hubBefore, before := hub.Inventory(t), managed.Inventory(t)
	flag, file := tagged(t, tag)
	ours := []string{"--image-registry", strings.TrimSuffix(registry, "/"), flag, file}

	says(t, hub.clusteradm(t, "init", append(ours, "--wait")...), "The multicluster hub control plane has been initialized successfully!")
	joinByClusteradm(t, hub, managed, name, ours)
	pod := deployByClusteradm(t, hub, managed, name)
	says(t, hub.clusteradm(t, "get", "hub-info"), registry+"registration-operator:"+tag, registry+"registration:"+tag)
	says(t, managed.clusteradm(t, "get", "klusterlet-info"), registry+"registration-operator:"+tag)

	says(t, hub.capstan(t, "get", "clusters"), name)
	says(t, hub.capstan(t, "get", "works", "--clusters", name), "hello", "placed")
	says(t, hub.capstan(t, "get", "addon"), "greeting")
	says(t, hub.capstan(t, "get", "hub-info"), registry+"placement:"+tag, registry+"addon-manager:"+tag)
	says(t, managed.capstan(t, "get", "klusterlet-info"), registry+"registration:"+tag, registry+"work:"+tag)
	hub.capstan(t, "upgrade", "clustermanager", flag, file)
	managed.capstan(t, "upgrade", "klusterlet", flag, file)
	hub.awaitImages(t, "capstan-hub")
	managed.awaitImages(t, "capstan-agent")
	if info := managed.clusteradm(t, "get", "klusterlet-info"); strings.Contains(info, "<none>") {
		t.Errorf("clusteradm does not find the container of the operator:\n%s", info)
	}

	hub.stopOperatorOfHub(t)
	hub.clusteradm(t, "upgrade", append([]string{"clustermanager"}, ours...)...)
	managed.clusteradm(t, "upgrade", append([]string{"klusterlet"}, ours...)...)
	hub.awaitImages(t, "registration-operator", "registration", "work", "placement", "addon-manager")
	managed.awaitImages(t, "registration-operator", "registration", "work")
	hub.awaitHubUp(t)
	hub.reaches(t, managed, name)
	if now := managed.AwaitPod(t, "default", "hello"); now.UID != pod.UID {
		t.Errorf("the pod of the work has the UID %s, and had %s", now.UID, pod.UID)
	}

	undeploy(t, hub, managed, name)
	says(t, managed.clusteradm(t, "unjoin", "--cluster-name", name), "Applied resources have been deleted during the "+name+" joined stage")
	managed.deleteRemainsOfUnjoin(t)
	managed.AwaitInventory(t, before)
	hub.forget(t, name)
	hub.clusteradm(t, "delete", "token")
	says(t, hub.clusteradm(t, "clean"), "The multicluster hub control plane has been clean up successfully!")
	hub.deleteRemainsOfClean(t, name)
	hub.deleteClusterInfo(t)
	hub.AwaitInventory(t, hubBefore)
}

// clusteradm runs the command line of Open Cluster Management, which must succeed, and returns what it writes to standard output.
func (c cluster) clusteradm(t *testing.T, command string, args ...string) string {
	t.Helper()
	out, err := c.tryClusteradm(t, command, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c cluster) tryClusteradm(t *testing.T, command string, args ...string) (string, error) {
	t.Helper()
	return runCommand(t, "ocm/clusteradm", c.Kubeconfig, c.home, append([]string{command}, args...)...)
}

// joinCredential is what "get token -o json" prints.
type joinCredential struct {
	Token  string `json:"hub-token"`
	Server string `json:"hub-apiserver"`
}

func parseJoinCredential(t *testing.T, output string) (credential joinCredential) {
	t.Helper()
	if err := json.Unmarshal([]byte(output), &credential); err != nil {
		t.Fatal(err)
	}
	return credential
}

// joinByClusteradm has a cluster join the hub, which accepts it, and waits until it is available.
func joinByClusteradm(t *testing.T, hub, managed cluster, name string, imageFlags []string) {
	t.Helper()
	credential := parseJoinCredential(t, hub.clusteradm(t, "get", "token", "-o", "json"))
	says(t, managed.clusteradm(t, "join", append(imageFlags, "--hub-token", credential.Token, "--hub-apiserver", credential.Server,
		"--cluster-name", name, "--wait")...), "accept --clusters "+name)
	says(t, hub.clusteradm(t, "accept", "--clusters", name, "--wait"), "Your managed cluster "+name+" has joined the Hub successfully")
	hub.awaitAvailable(t, name)
}

// deployByClusteradm gives a cluster a work by its name, one by a placement, and an add-on. It returns the pod of the first.
func deployByClusteradm(t *testing.T, hub, managed cluster, name string) *corev1.Pod {
	t.Helper()
	hub.clusteradm(t, "create", "work", "hello", "--clusters", name, "-f", writeFile(t, hello))
	pod := managed.AwaitPhase(t, "default", "hello", corev1.PodRunning)
	hub.awaitWork(t, name)
	says(t, hub.clusteradm(t, "get", "clusters", "-o", "table"), name, "True")
	says(t, hub.clusteradm(t, "get", "works", "--clusters", name, "-o", "table"), "hello", "True")

	says(t, hub.clusteradm(t, "create", "clusterset", "retail"), "Clusterset retail is created")
	hub.Eventually(t, func(context.Context) error { // it writes back what it has read, which the agent may have changed meanwhile
		_, err := hub.tryClusteradm(t, "clusterset", "set", "retail", "--clusters", name)
		return err
	})
	says(t, hub.clusteradm(t, "get", "clusters", "--clusterset", "retail", "-o", "table"), name)
	says(t, hub.clusteradm(t, "clusterset", "bind", "retail", "--namespace", "default"), "Clusterset retail is bound to Namespace default")
	hub.clusteradm(t, "create", "placement", "chosen", "--namespace", "default", "--clustersets", "retail")
	hub.awaitDecision(t, "chosen", name)
	says(t, hub.clusteradm(t, "get", "placements", "--namespace", "default"), "chosen", name)
	hub.clusteradm(t, "create", "work", "placed", "--placement", "default/chosen", "-f", writeFile(t, configMap("placed")))
	managed.awaitConfigMap(t, "placed")

	hub.clusteradm(t, "addon", "create", "greeting", "-f", writeFile(t, configMap("greeting")))
	says(t, hub.clusteradm(t, "addon", "enable", "--names", "greeting", "--clusters", name), "Deploying greeting add-on")
	managed.awaitConfigMap(t, "greeting")
	says(t, hub.clusteradm(t, "get", "addon"), "greeting")
	return pod
}

// undeploy takes away what deployByClusteradm has given a cluster, and waits until the agent has nothing left to take off: otherwise
// "unjoin" of clusteradm does nothing.
func undeploy(t *testing.T, hub, managed cluster, name string) {
	t.Helper()
	says(t, hub.clusteradm(t, "addon", "disable", "--names", "greeting", "--clusters", name), "Undeploying greeting add-on")
	hub.AwaitGone(t, &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "greeting"}})
	for _, work := range []string{"hello", "placed"} { // clusteradm gives an agent ten seconds for that
		hub.deleteWork(t, work, name)
	}
	managed.Eventually(t, func(ctx context.Context) error {
		applied := &workv1.AppliedManifestWorkList{}
		if err := managed.Client.List(ctx, applied); err != nil || len(applied.Items) == 0 {
			return err
		}
		return fmt.Errorf("AppliedManifestWork %s is there", applied.Items[0].Name)
	})
}

// awaitDecision waits until a Placement in the namespace default has decided for the cluster.
func (c cluster) awaitDecision(t *testing.T, placement, name string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		list := &clusterv1beta1.PlacementDecisionList{}
		err := c.Client.List(ctx, list, client.InNamespace("default"), client.MatchingLabels{fleet.LabelPlacement: placement})
		if err != nil {
			return err
		}
		for i := range list.Items {
			for _, decision := range list.Items[i].Status.Decisions {
				if decision.ClusterName == name {
					return nil
				}
			}
		}
		return fmt.Errorf("placement %s has not decided for cluster %s", placement, name)
	})
}

// configMap is one in the namespace default.
func configMap(name string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", namespace: default}}"
}

func (c cluster) awaitConfigMap(t *testing.T, name string) {
	t.Helper()
	key := types.NamespacedName{Namespace: "default", Name: name}
	c.Eventually(t, func(ctx context.Context) error { return c.Client.Get(ctx, key, &corev1.ConfigMap{}) })
}

// awaitImages waits until the Deployments of Open Cluster Management have these images alone, and run.
func (c cluster) awaitImages(t *testing.T, names ...string) {
	t.Helper()
	c.Eventually(t, func(context.Context) error {
		var others []error
		for _, deployment := range deployments(t, c.Cluster) {
			for _, container := range deployment.Spec.Template.Spec.Containers {
				isOne := func(name string) bool { return container.Image == registry+name+":"+tag }
				if !slices.ContainsFunc(names, isOne) {
					others = append(others, fmt.Errorf("Deployment %s/%s has the image %s", deployment.Namespace, deployment.Name, container.Image))
				}
			}
		}
		return errors.Join(others...)
	})
	for _, deployment := range deployments(t, c.Cluster) {
		c.AwaitAvailable(t, deployment.Namespace, deployment.Name)
	}
}

// stopOperatorOfHub stops the operator of a hub that is to go back to Open Cluster Management, and deletes what that has no counterpart of,
// as docs/migrating.md says: the rights that clusteradm gives are not enough for it.
func (c cluster) stopOperatorOfHub(t *testing.T) {
	t.Helper()
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: "cluster-manager"}}
	c.patch(t, operator, `{"spec": {"replicas": 0}}`)
	c.awaitNoPods(t, fleet.NamespaceOperators, "cluster-manager")
	made := client.MatchingLabels{fleet.LabelCreatedByClusterManager: "cluster-manager"}
	for _, kind := range []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{},
	} {
		if err := c.Client.DeleteAllOf(t.Context(), kind, made); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []client.Object{&networkingv1.NetworkPolicy{}, &policyv1.PodDisruptionBudget{}} {
		if err := c.Client.DeleteAllOf(t.Context(), kind, client.InNamespace(fleet.NamespaceHub), made); err != nil {
			t.Fatal(err)
		}
	}
}

// deleteRemainsOfClean deletes what "clean" of clusteradm leaves of a cluster: its namespace and its certificate requests.
func (c cluster) deleteRemainsOfClean(t *testing.T, name string) {
	t.Helper()
	c.deleteRequests(t, client.MatchingLabels{fleet.LabelClusterName: name})
	c.deleteNamespace(t, name)
}

// deleteClusterInfo deletes how the hub is reached, which clusteradm publishes, and leaves.
func (c cluster) deleteClusterInfo(t *testing.T) {
	t.Helper()
	c.delete(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"}})
}

// deleteRemainsOfUnjoin deletes what "unjoin" of clusteradm leaves: the namespace of the operator, which may be that of a hub, too, and the
// kinds that the operator leaves for what users have stored.
func (c cluster) deleteRemainsOfUnjoin(t *testing.T) {
	t.Helper()
	c.deleteNamespace(t, fleet.NamespaceOperators)
	for _, name := range []string{installation.CRDAppliedManifestWorks, installation.CRDClusterClaims} {
		kind := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.delete(t, kind)
		c.AwaitGone(t, kind)
	}
}
