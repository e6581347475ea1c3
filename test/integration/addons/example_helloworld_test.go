package addons

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// The example helloworld, as its documentation has it but for the name of the cluster: deployed by its controller, which has the
// rights of its manifest alone, it copies ConfigMaps from the hub with an agent that has those of the add-on's manifests.
// AF-01 to AF-06, AF-09, AF-21, AF-25, RG-62, RG-63.
func TestExampleHelloWorld(t *testing.T) {
	t.Parallel()
	const cluster, name = "examplehelloworld", "helloworld"
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	env.Join(t, framework.Hub, framework.Managed, cluster)
	runHelloWorldController(t)
	for _, object := range exampleObjects(t, name, "managedclusteraddon.yaml") {
		object.SetNamespace(cluster)
		framework.Create(t, h, object)
	}

	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	awaitRegistrationOfArticle(t, cluster, name)
	awaitIssued(t, cluster, name)
	secret := framework.AwaitSecret(t, m, "default", name+"-hub-kubeconfig", framework.KubeKeys, framework.AnySecret)
	awaitDeployedAsInArticle(t, cluster)
	framework.AwaitAddOn(t, addOn, fleet.ConditionAvailable, metav1.ConditionUnknown, "ManagedClusterAddOnLeaseNotFound", "")

	agent := runExampleAgent(t, name, "default", "helloworld-agent-sa", secret, framework.Managed,
		"agent", "--cluster-name", cluster, "--addon-namespace", "default", "--lease-interval", "1s")
	framework.AwaitAddOn(t, addOn, fleet.ConditionAvailable, metav1.ConditionTrue, "ManagedClusterAddOnLeaseUpdated",
		name+" add-on is available.")
	copyConfigMaps(t, cluster)

	agent.Kill()
	framework.AwaitAddOn(t, addOn, fleet.ConditionAvailable, metav1.ConditionFalse, "ManagedClusterAddOnLeaseUpdateStopped", "")

	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, addOn)
	framework.AwaitGone(t, m, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "helloworld-agent"}})
	framework.AwaitGone(t, m, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-hub-kubeconfig"}})
	framework.AwaitGone(t, h, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "helloworld-agent"}})
}

// runHelloWorldController runs the controller as the service account that it is deployed with.
func runHelloWorldController(t *testing.T) {
	t.Helper()
	for _, file := range []string{"rights.yaml", "clustermanagementaddon.yaml"} {
		for _, object := range exampleObjects(t, "helloworld", file) {
			framework.Create(t, framework.Hub.Client(t), object)
		}
	}
	controller := env.NewProgram(t, []string{"KUBECONFIG=" + framework.KubeconfigIn(t, framework.Hub, "helloworld", "helloworld-controller")}, "helloworld",
		"controller")
	startExample(t, controller)
}

// startExample starts a program of an example, which is not to lack any right.
func startExample(t *testing.T, program *env.Process) {
	t.Helper()
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if log := program.Log(); strings.Contains(log, "forbidden") {
			t.Errorf("a right is missing:\n%s", log)
		}
	})
}

// runExampleAgent runs the agent of an example as its pod would: with its Secret, as its service account.
func runExampleAgent(t *testing.T, program, namespace, account string, secret *corev1.Secret, on *env.Server, args ...string) *env.Process {
	t.Helper()
	dir := t.TempDir()
	for file, content := range secret.Data {
		env.ReplaceFile(t, filepath.Join(dir, file), content)
	}
	agent := env.NewProgram(t, nil, program, append(args, "--hub-kubeconfig", filepath.Join(dir, "kubeconfig"), "--kubeconfig",
		framework.KubeconfigIn(t, on, namespace, account))...)
	startExample(t, agent)
	return agent
}

// awaitRegistrationOfArticle waits until the status, in the version of the article, has the registration that it shows.
func awaitRegistrationOfArticle(t *testing.T, cluster, name string) {
	t.Helper()
	addOn := &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	framework.AwaitObject(t, framework.Hub.Client(t), addOn, func(addOn *addonv1alpha1.ManagedClusterAddOn) error {
		if n := len(addOn.Status.Registrations); n != 1 {
			return fmt.Errorf("%d registrations", n)
		}
		registration := addOn.Status.Registrations[0]
		groups := []string{"system:open-cluster-management:cluster:" + cluster + ":addon:" + name, "system:open-cluster-management:addon:" + name,
			"system:authenticated"}
		if registration.SignerName != certificatesv1.KubeAPIServerClientSignerName || !slices.Equal(registration.Subject.Groups, groups) ||
			!strings.HasPrefix(registration.Subject.User, groups[0]+":agent:") {
			return fmt.Errorf("registration %+v", registration)
		}
		return nil
	})
}

// awaitIssued waits until the certificate request of the agent of the add-on is approved and has its certificate.
func awaitIssued(t *testing.T, cluster, name string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		requests := &certificatesv1.CertificateSigningRequestList{}
		if err := framework.Hub.Client(t).List(ctx, requests,
			client.MatchingLabels{fleet.LabelClusterName: cluster, fleet.LabelAddOnName: name}); err != nil {
			return err
		}
		for _, csr := range requests.Items {
			if strings.HasPrefix(csr.Name, "addon-"+cluster+"-"+name+"-") && len(csr.Status.Certificate) > 0 && len(csr.Status.Conditions) == 1 &&
				csr.Status.Conditions[0].Type == certificatesv1.CertificateApproved {
				return nil
			}
		}
		return fmt.Errorf("none of %d requests is approved and issued", len(requests.Items))
	})
}

// awaitDeployedAsInArticle waits for what the article lists on the hub and on the managed cluster.
func awaitDeployedAsInArticle(t *testing.T, cluster string) {
	t.Helper()
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "addon-helloworld-deploy-0"}}
	framework.AwaitCondition(t, framework.Hub.Client(t), w, fleet.ConditionApplied, metav1.ConditionTrue)
	inDefault := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	for _, object := range []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "helloworld-addon"}},
		&corev1.ServiceAccount{ObjectMeta: inDefault("helloworld-agent-sa")},
	} {
		framework.AwaitObject(t, framework.Managed.Client(t), object, func(client.Object) error { return nil })
	}
	framework.AwaitObject(t, framework.Managed.Client(t), &appsv1.Deployment{ObjectMeta: inDefault("helloworld-agent")},
		func(d *appsv1.Deployment) error {
			if d.Status.ReadyReplicas != 1 {
				return fmt.Errorf("%d replicas are ready", d.Status.ReadyReplicas)
			}
			return nil
		})
}

// copyConfigMaps has the agent copy, change, repair and delete.
func copyConfigMaps(t *testing.T, cluster string) {
	t.Helper()
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kube-root-ca.crt"}}
	framework.AwaitObject(t, m, there, func(*corev1.ConfigMap) error { return nil })

	for _, object := range exampleObjects(t, "helloworld", "configmap.yaml") {
		object.SetNamespace(cluster)
		framework.Create(t, h, object)
	}
	framework.AwaitData(t, m, "default", "helloworld", map[string]string{"value": "helloworld"})
	framework.PatchData(t, h, cluster, "helloworld", "value", "hello again")
	copied := framework.AwaitData(t, m, "default", "helloworld", map[string]string{"value": "hello again"})
	if err := m.Delete(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	framework.AwaitData(t, m, "default", "helloworld", map[string]string{"value": "hello again"})
	if err := h.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "helloworld"}}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "helloworld"}})

	after := &corev1.ConfigMap{}
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(there), after); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(there.Data, after.Data) {
		t.Error("the agent overwrote kube-root-ca.crt, which every namespace has of its own")
	}
}
