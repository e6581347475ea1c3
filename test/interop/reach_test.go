package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// filesOfSecret writes the content of a Secret into a folder, as a volume of a pod has it, once it has the key.
func filesOfSecret(t *testing.T, cluster *env.Server, namespace, name, key string) string {
	t.Helper()
	secret := framework.AwaitObject(t, cluster.Client(t), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		func(secret *corev1.Secret) error {
			if len(secret.Data[key]) == 0 {
				return fmt.Errorf("the Secret %s/%s has no %s", namespace, name, key)
			}
			return nil
		})
	dir := t.TempDir()
	for file, content := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// awaitAddOn waits until conditions of an add-on are True.
func awaitAddOn(t *testing.T, hub client.Client, cluster, name string, conditions ...string) {
	t.Helper()
	framework.AwaitObject(t, hub, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}},
		func(addOn *addonv1beta1.ManagedClusterAddOn) error {
			for _, condition := range conditions {
				if !meta.IsStatusConditionTrue(addOn.Status.Conditions, condition) {
					return fmt.Errorf("not %s: %+v", condition, addOn.Status.Conditions)
				}
			}
			return nil
		})
}

// installed are the conditions of an add-on that its manager and our agent have installed.
var installed = []string{"RegistrationApplied", "ManifestApplied", fleet.ConditionCertificateRotated}

// MS-01 MS-02 MS-04: manager and agent of the managed service accounts of Open Cluster Management run on a hub that does not have the
// add-on built in: the agent puts the token of a service account of the cluster into a Secret on the hub, and takes the account away.
func TestServiceAccountsOfOCM(t *testing.T) {
	t.Parallel()
	const cluster, addOn, program = "capstan1", fleet.AddOnManagedServiceAccount, "cmd" // go build names it after its folder
	server, managed := env.StartHub(t, "", "--built-in-addons", fleet.AddOnClusterGateway), env.StartSandbox(t)
	hub := server.Client(t)
	env.Join(t, server, managed, cluster)
	framework.Create(t, hub, &addonv1alpha1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: addOn}},
		&addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOn}})
	startOCMIn(t, []string{"NAMESPACE=" + fleet.NamespaceAddOn}, program, "manager", "--kubeconfig", server.Kubeconfig,
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	awaitAddOn(t, hub, cluster, addOn, installed...)
	kubeconfig := filepath.Join(filesOfSecret(t, managed, fleet.NamespaceAgentAddOn, addOn+"-hub-kubeconfig", "tls.crt"), fleet.KeyKubeconfig)
	startOCMIn(t, []string{"NAMESPACE=" + fleet.NamespaceAgentAddOn, "HUB_KUBECONFIG=" + kubeconfig}, program, "agent",
		"--kubeconfig", kubeconfig, "--spoke-kubeconfig", managed.Kubeconfig, "--cluster-name", cluster, "--lease-health-check",
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0")

	account := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "reader"},
		Spec: authenticationv1beta1.ManagedServiceAccountSpec{Rotation: authenticationv1beta1.ManagedServiceAccountRotation{
			Enabled: true, Validity: metav1.Duration{Duration: time.Hour}}}}
	framework.Create(t, hub, account)
	token, err := os.ReadFile(filepath.Join(filesOfSecret(t, server, cluster, account.Name, "token"), "token"))
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(framework.AsAdmin(t, managed))
	config.BearerToken = string(token)
	review := &authenticationv1.SelfSubjectReview{}
	if err := env.ClientFor(t, config).Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if got, want := review.Status.UserInfo.Username, "system:serviceaccount:"+fleet.NamespaceAgentAddOn+":"+account.Name; got != want {
		t.Errorf("the token is that of %s, want %s", got, want)
	}
	awaitAddOn(t, hub, cluster, addOn, fleet.ConditionAvailable)
	if err := hub.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	there := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAgentAddOn, Name: account.Name}}
	awaitGone(t, managed.Client(t), there)
}

// proxyOfOCM describes the proxy servers of Open Cluster Management, whose agents connect to a port of this machine.
const proxyOfOCM = `
apiVersion: proxy.open-cluster-management.io/v1alpha1
kind: ManagedProxyConfiguration
metadata: {name: cluster-proxy}
spec:
  authentication: {signer: {type: SelfSigned}, dump: {secrets: {}}}
  proxyServer:
    image: proxy-server
    replicas: 1
    namespace: %s
    entrypoint: {type: Hostname, hostname: {value: 127.0.0.1}, port: %s}
  proxyAgent: {image: proxy-agent, replicas: 1}
`

// CP-01 CP-02 CP-05 CP-06: the manager of the cluster proxy of Open Cluster Management runs on a hub that does not have the add-on built
// in, and signs a certificate for the agent, for which ours has asked. With what both have made, a server and an agent of konnectivity
// connect the hub with the API server of the cluster. A standalone hub has no pods, in which they would run.
func TestClusterProxyOfOCM(t *testing.T) {
	t.Parallel()
	// The agent connects to the name of the cluster, which is that of a Service there. Here, it is that of this machine.
	const cluster, addOn, there = "localhost", fleet.AddOnClusterProxy, "open-cluster-management-cluster-proxy"
	server, managed := env.StartHub(t, "", "--built-in-addons", fleet.AddOnClusterGateway), env.StartSandbox(t)
	hub := server.Client(t)
	env.Join(t, server, managed, cluster)
	port := freePort(t)
	createProxyOfOCM(t, hub, port)
	framework.Create(t, hub, &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOn}})
	startOCM(t, "addon-manager", "--kubeconfig", server.Kubeconfig, "--metrics-bind-address", "0", "--health-probe-bind-address", "0",
		"--signer-secret-namespace", fleet.NamespaceAddOn, "--enable-service-proxy=false")
	awaitAddOn(t, hub, cluster, addOn, installed...)

	secret := func(name string) string { return filesOfSecret(t, server, fleet.NamespaceAddOn, name, "tls.crt") }
	ca := filepath.Join(filesOfSecret(t, server, fleet.NamespaceAddOn, "cluster-proxy-signer", "ca.crt"), "ca.crt")
	forUsers, forAgents, front := secret("proxy-server"), secret("agent-server"), freePort(t)
	startOCM(t, "server", "--server-count=1", "--proxy-strategies=destHost", "--server-port", front, "--agent-port", port,
		"--admin-port", freePort(t), "--health-port", freePort(t), "--server-ca-cert", ca, "--cluster-ca-cert", ca,
		"--server-cert", filepath.Join(forUsers, "tls.crt"), "--server-key", filepath.Join(forUsers, "tls.key"),
		"--cluster-cert", filepath.Join(forAgents, "tls.crt"), "--cluster-key", filepath.Join(forAgents, "tls.key"))
	agent := env.NewProgram(t, nil, filepath.Join("ocm", "agent"), agentOfProxy(t, managed, there)...)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Kill) // asked to stop, it waits for a minute

	config := rest.CopyConfig(framework.AsAdmin(t, managed))
	address, err := net.ResolveTCPAddr("tcp", strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	access := filesOfSecret(t, managed, there, addOn+"-hub-kubeconfig", "tls.crt")
	if _, err := clientcmd.LoadFromFile(filepath.Join(access, fleet.KeyKubeconfig)); err != nil {
		t.Errorf("the add-on has no kubeconfig of the hub: %v", err)
	}
	users := clientOfProxy(t, ca, secret("proxy-client"))
	config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		way, err := konnectivity.CreateSingleUseGrpcTunnel(context.WithoutCancel(ctx), "127.0.0.1:"+front, grpc.WithTransportCredentials(users))
		if err != nil {
			return nil, err
		}
		return way.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", cluster, address.Port))
	}
	through, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(context.Context) error {
		_, err := through.ServerVersion()
		return err
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(env.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// createProxyOfOCM creates what the chart of that cluster proxy has beside its manager.
func createProxyOfOCM(t *testing.T, hub client.Client, port string) {
	t.Helper()
	createKinds(t, hub, filesOf(t, "open-cluster-management.io/cluster-proxy", "charts/cluster-proxy/crds/*.yaml"))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceAddOn}}
	if err := client.IgnoreAlreadyExists(hub.Create(t.Context(), namespace)); err != nil {
		t.Fatal(err)
	}
	proxy := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, proxyOfOCM, fleet.NamespaceAddOn, port), &proxy.Object); err != nil {
		t.Fatal(err)
	}
	framework.Create(t, hub, proxy, &addonv1alpha1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: fleet.AddOnClusterProxy},
		Spec: addonv1alpha1.ClusterManagementAddOnSpec{SupportedConfigs: []addonv1alpha1.ConfigMeta{{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: proxy.GroupVersionKind().Group, Resource: "managedproxyconfigurations"},
			DefaultConfig:       &addonv1beta1.ConfigReferent{Name: proxy.GetName()}}}}})
}

// agentOfProxy are the arguments that the Deployment on the cluster has for konnectivity's agent, with files of this machine.
func agentOfProxy(t *testing.T, managed *env.Server, namespace string) []string {
	t.Helper()
	deployment := framework.AwaitObject(t, managed.Client(t), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cluster-proxy-proxy-agent"}}, func(*appsv1.Deployment) error { return nil })
	containers := deployment.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "proxy-agent" })
	if i < 0 {
		t.Fatalf("the Deployment has no container proxy-agent: %+v", containers)
	}
	files := strings.NewReplacer("/etc/ca/", filesOfSecret(t, managed, namespace, "cluster-proxy-ca", "ca.crt")+"/", "/etc/tls/",
		filesOfSecret(t, managed, namespace, "cluster-proxy-open-cluster-management.io-proxy-agent-signer-client-cert", "tls.crt")+"/")
	args := []string{"--health-server-port", freePort(t), "--admin-server-port", freePort(t)}
	for _, arg := range containers[i].Args {
		args = append(args, files.Replace(arg))
	}
	return args
}

// clientOfProxy is how clients of the proxy server know it, and it them.
func clientOfProxy(t *testing.T, caFile, dir string) credentials.TransportCredentials {
	t.Helper()
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("%s has no certificates", caFile)
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
}
