package walkthrough

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
	"github.com/capstan-io/capstan/test/realcluster"
)

// A user who has installed hub and agent with objects as installers of Open Cluster Management write them, and our images under its names,
// changes to Capstan one component at a time, and in the end has what the command line installs. What runs on the cluster goes on all the
// while. The permissions of the operators are those that these installers give, and come late, until the command line gives them its own.
//
// CA-12, CA-18, HC-02, HC-06, CM-06, KL-12
func TestFromOpenClusterManagement(t *testing.T) {
	t.Parallel()
	const name = "migrated"
	clusters := start(t, "hub", name)
	hub, managed := clusters[0], clusters[1]
	for _, cluster := range clusters {
		cluster.importImages(t, "capstan-hub", "capstan-agent", "registration-operator")
	}
	hubBefore, before := hub.Inventory(t), managed.Inventory(t)

	installHub(t, hub.Cluster)
	joinHub(t, hub, managed, name)
	hub.accept(t, name)
	for _, deployment := range []string{"klusterlet-registration-agent", "klusterlet-work-agent"} {
		managed.AwaitAvailable(t, fleet.NamespaceAgent, deployment)
	}
	pod := hub.createWork(t, managed, name)
	changeOneImage(t, hub.Cluster)
	hub.initialize(t)
	managed.join(t, hub.capstan(t, "get", "token"), name, "--wait")
	flag, file := tagged(t, tag)
	managed.capstan(t, "upgrade", "klusterlet", "--wait", flag, file) // join leaves an operator that runs as it is
	hub.awaitImages(t, "capstan-hub")
	managed.awaitImages(t, "capstan-agent")
	hub.awaitWork(t, name)
	if now := managed.AwaitPod(t, "default", "hello"); now.UID != pod.UID {
		t.Errorf("the pod of the work has the UID %s, and had %s", now.UID, pod.UID)
	}

	hub.deleteWork(t, "hello", name)
	managed.capstan(t, "unjoin", "--cluster-name", name, "--wait")
	managed.AwaitInventory(t, before)
	hub.forget(t, name)
	hub.clean(t, hub, []string{name})
	hub.AwaitInventory(t, hubBefore)
}

// installHub installs a hub, and waits for the pods that clusteradm waits for: those of the operator, and of the registration controller.
func installHub(t *testing.T, hub *realcluster.Cluster) {
	t.Helper()
	applyContract(t, hub, "contract-hub.yaml", "cluster-manager", "clustermanagers", rightstest.ClusterManager())
	awaitReady(t, hub, fleet.NamespaceHub, "clustermanager-registration-controller")
}

// joinHub installs an agent that joins the hub with a token of it.
func joinHub(t *testing.T, hub, managed cluster, name string) {
	t.Helper()
	credential := parseJoinCredential(t, hub.capstan(t, "get", "token", "-o", "json"))
	applyContract(t, managed.Cluster, "contract-cluster.yaml", "klusterlet", "klusterlets", rightstest.Klusterlet(), "CLUSTER", name,
		"HUB_SERVER", credential.Server, "HUB_TOKEN", credential.Token, "HUB_CA", base64.StdEncoding.EncodeToString(hub.Config.CAData))
}

// applyContract applies a file of testdata with words replaced, after the CRD. The rights of the operator come once it has said that it
// lacks some.
func applyContract(
	t *testing.T, cluster *realcluster.Cluster, file, operator, crd string, rules []rbacv1.PolicyRule, replacements ...string,
) {
	t.Helper()
	cluster.Apply(t, readText(t, filepath.Join("../../deploy/charts", operator, "crds", crd+".yaml")))
	cluster.Eventually(t, func(ctx context.Context) error {
		return cluster.Clientset.Discovery().RESTClient().Get().AbsPath("/apis", operatorv1.GroupVersion.String(), crd).Do(ctx).Error()
	})
	replacements = append(replacements, "REGISTRY", strings.TrimSuffix(registry, "/"), ":TAG", ":"+tag)
	cluster.Apply(t, strings.NewReplacer(replacements...).Replace(readText(t, filepath.Join("testdata", file))))
	awaitReady(t, cluster, fleet.NamespaceOperators, operator)
	awaitLog(t, cluster, operator, "is forbidden: User")
	role, err := yaml.Marshal(&rbacv1.ClusterRole{Rules: rules, ObjectMeta: metav1.ObjectMeta{Name: operator},
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Apply(t, string(role))
}

// awaitLog waits until the operator has written a text to its log.
func awaitLog(t *testing.T, cluster *realcluster.Cluster, operator, text string) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		for _, pod := range cluster.Pods(t, fleet.NamespaceOperators, map[string]string{"app": operator}) {
			log, err := cluster.Logs(ctx, pod.Namespace, pod.Name, corev1.PodLogOptions{})
			if err != nil {
				return err
			}
			if strings.Contains(log, text) {
				return nil
			}
		}
		return fmt.Errorf("the log of operator %s has no %q", operator, text)
	})
}

// awaitReady waits until there are pods whose label app has the value, and all of them are ready.
func awaitReady(t *testing.T, cluster *realcluster.Cluster, namespace, app string) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app": app}); err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return fmt.Errorf("no pod in namespace %s has the label app=%s", namespace, app)
		}
		for i := range pods.Items {
			if !isReady(&pods.Items[i]) {
				return fmt.Errorf("pod %s/%s is not ready", namespace, pods.Items[i].Name)
			}
		}
		return nil
	})
}

// changeOneImage gives the placement controller the image capstan-hub, which changes no other Deployment.
func changeOneImage(t *testing.T, hub *realcluster.Cluster) {
	t.Helper()
	const changed = "cluster-manager-placement-controller"
	before := generations(t, hub)
	manager := &operatorv1.ClusterManager{}
	manager.Name = "cluster-manager"
	patch := fmt.Sprintf(`{"spec": {"placementImagePullSpec": "%scapstan-hub:%s"}}`, registry, tag)
	if err := hub.Client.Patch(t.Context(), manager, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	hub.Eventually(t, func(context.Context) error {
		if generations(t, hub)[changed] == before[changed] {
			return errors.New("the placement controller has the image that it had")
		}
		return nil
	})
	hub.AwaitAvailable(t, fleet.NamespaceHub, changed)
	for name, generation := range generations(t, hub) {
		if name != changed && generation != before[name] {
			t.Errorf("Deployment %s is changed with the placement controller", name)
		}
	}
}

// generations of the Deployments of the hub.
func generations(t *testing.T, hub *realcluster.Cluster) map[string]int64 {
	t.Helper()
	generations := map[string]int64{}
	for _, deployment := range deployments(t, hub) {
		if deployment.Namespace == fleet.NamespaceHub {
			generations[deployment.Name] = deployment.Generation
		}
	}
	return generations
}

// deployments are those in the namespaces of Open Cluster Management.
func deployments(t *testing.T, cluster *realcluster.Cluster) []appsv1.Deployment {
	t.Helper()
	var all, ours appsv1.DeploymentList
	if err := cluster.Client.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, deployment := range all.Items {
		if strings.HasPrefix(deployment.Namespace, fleet.NamespaceOperators) {
			ours.Items = append(ours.Items, deployment)
		}
	}
	return ours.Items
}
