package walkthrough

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// exposed makes the webhooks of a hosted hub reachable at ports of the node, as Open Cluster Management documents it.
const exposed = `
apiVersion: v1
kind: Service
metadata:
  name: cluster-manager-registration-webhook-external
  namespace: cluster-manager
spec:
  type: NodePort
  selector:
    app: cluster-manager-registration-webhook
  ports:
    - port: 9443
      nodePort: 30443
---
apiVersion: v1
kind: Service
metadata:
  name: cluster-manager-work-webhook-external
  namespace: cluster-manager
spec:
  type: NodePort
  selector:
    app: cluster-manager-work-webhook
  ports:
    - port: 9443
      nodePort: 31443
`

// The controllers of a hub run in one cluster, and its API is that of another, where a third one joins. When the hub is removed, nothing is
// left but what the user has made for it.
//
// CM-03, CM-04, CA-10, CA-20
func TestHostedHub(t *testing.T) {
	t.Parallel()
	clusters := start(t, "management", "hub", "managed")
	management, hub, managed := clusters[0], clusters[1], clusters[2]
	management.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent")
	before, beforeHub, beforeManaged := management.Inventory(t), hub.Inventory(t), managed.Inventory(t)
	values := writeFile(t, `
clusterManager:
  mode: Hosted
  deployOption:
    hosted:
      registrationWebhookConfiguration: {address: `+management.NodeIP+`, port: 30443}
      workWebhookConfiguration: {address: `+management.NodeIP+`, port: 31443}
`)
	refused := management.refused(t, "init", "--cluster-manager-values-file", values)
	management.follow(t, refused, "create namespace cluster-manager")
	management.follow(t, refused, "--namespace cluster-manager create secret generic external-hub-kubeconfig --from-file=kubeconfig=FILE",
		"FILE", hub.Kubeconfig)
	management.Apply(t, exposed)
	initialized := management.initialize(t, "--cluster-manager-values-file", values)
	if pods := management.podNames(t, "cluster-manager"); !maps.Equal(pods, hubPods) {
		t.Errorf("the hub has the pods %v", pods)
	}
	hub.asksWebhooks(t)

	managed.join(t, initialized, "managed", "--wait")
	hub.accept(t, "managed")
	hub.createWork(t, managed, "managed")
	says(t, management.refused(t, "clean"), "these clusters of the hub are available: managed")
	hub.deleteWork(t, "hello", "managed")
	managed.capstan(t, "unjoin", "--cluster-name", "managed", "--wait")
	managed.AwaitInventory(t, beforeManaged)
	hub.forget(t, "managed")

	management.clean(t, hub, []string{"good", "managed"}, "--wait")
	hub.AwaitInventory(t, beforeHub)
	management.deleteNamespace(t, "cluster-manager")
	management.AwaitInventory(t, before)
}

// asksWebhooks makes sure that the API server of the hub asks all webhooks: what is right passes, what is not is refused.
func (c cluster) asksWebhooks(t *testing.T) {
	t.Helper()
	c.awaitAccepted(t, "good")
	bad := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{
		ManagedClusterClientConfigs: []clusterv1.ClientConfig{{URL: "http://no-tls.example.com"}}}}
	bad.Name = "bad"
	c.denies(t, bad, "managedclustervalidators.admission.cluster.open-cluster-management.io")
	nameless := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "good", Name: "nameless"}}
	nameless.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "a-"}}`)}}}
	c.denies(t, nameless, "manifestworkvalidators.admission.work.open-cluster-management.io")
	addOn := &addonv1alpha1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "helloworld"}}
	c.create(t, addOn)
	c.delete(t, addOn)
	c.forget(t, "good")
}

// denies makes sure that a webhook does not let an object be created.
func (c cluster) denies(t *testing.T, object client.Object, webhook string) {
	t.Helper()
	if err := c.Client.Create(t.Context(), object); err == nil {
		t.Errorf("%T %s is let in", object, object.GetName())
	} else {
		says(t, err.Error(), webhook, "denied the request")
	}
}
