package walkthrough

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-inventory-api/client/clientset/versioned"
	clusteraccess "sigs.k8s.io/cluster-inventory-api/pkg/access"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/realcluster"
)

// servingPod says so in its log, and answers HTTP.
const servingPod = `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: serving, labels: {app: serving}}, spec: {terminationGracePeriodSeconds: 1, containers: [
	{name: serving, image: "` + realcluster.TestImage + `", imagePullPolicy: Never, command: [sh, -c, "echo started; exec testpod serve :8080"]}]}}`

// What makes the pod a service that the agent reaches, and the hub expose it.
const (
	service = `{apiVersion: v1, kind: Service, metadata: {namespace: default, name: serving}, spec: {selector: {app: serving},
	ports: [{port: 80, targetPort: 8080}]}}`
	exposedServices = "- {namespace: default, service: serving, port: 80, protocol: http}"
)

// reaches has administrators of the hub do on a cluster what takes more than one answer: read a log that goes on, run a command in a pod,
// and connect to one. The cluster has to give them the right to that.
func (p plane) reaches(t *testing.T, hub client.Client, managed *realcluster.Cluster, name string) {
	t.Helper()
	standaloneCommand(t, p.kubeconfig(t), "addon", "enable", "--names", fleet.AddOnClusterProxy, "--clusters", name)
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	p.hosting.Eventually(t, func(ctx context.Context) error {
		if err := hub.Get(ctx, client.ObjectKey{Namespace: name, Name: fleet.AddOnClusterProxy}, addOn); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable) {
			return fmt.Errorf("the add-on has the conditions %v", addOn.Status.Conditions)
		}
		return nil
	})
	through := throughHub(t, p.kubeconfig(t), api.Standalone, name)
	reachesPod(t, managed, through)
	reachesService(t, hub, managed, through)
}

// reachesPod has them do that with a pod.
func reachesPod(t *testing.T, managed, through *realcluster.Cluster) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "administrators-of-the-hub"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: access.Prefix + "system:masters"}}}
	if err := managed.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	managed.Apply(t, servingPod)
	managed.AwaitPod(t, "default", "serving")

	managed.Eventually(t, func(ctx context.Context) error { // the authorizer of the cluster may not know the binding yet
		_, err := through.Clientset.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	})
	usesPod(t, through)
}

// usesPod watches the pod, follows its log, runs a command in it, and connects to it.
func usesPod(t *testing.T, through *realcluster.Cluster) {
	t.Helper()
	watch, err := through.Clientset.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=serving"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if pod, ok := (<-watch.ResultChan()).Object.(*corev1.Pod); !ok || pod.Name != "serving" {
		t.Errorf("the watch has %v", pod)
	}
	log, err := through.Clientset.CoreV1().Pods("default").GetLogs("serving", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if line, err := bufio.NewReader(log).ReadString('\n'); err != nil || line != "started\n" {
		t.Errorf("the log is %q, %v", line, err)
	}
	if out, err := through.Exec(t.Context(), "default", "serving", "", "echo", "hello"); err != nil || out != "hello\n" {
		t.Errorf("the command writes %q, %v", out, err)
	}
	address := through.PortForward(t, "default", "serving", 8080)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || strings.TrimSpace(string(body)) != "serving" {
		t.Errorf("the pod answers %q, %v", body, err)
	}
}

// reachesService has them read from a service of the cluster, which the agent reaches as a pod there.
func reachesService(t *testing.T, hub client.Client, managed, through *realcluster.Cluster) {
	t.Helper()
	managed.Apply(t, service)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceAddOn}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAddOn, Name: fleet.ConfigMapExposedServices},
			Data: map[string]string{"serving": exposedServices}},
	} {
		if err := hub.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	managed.Eventually(t, func(ctx context.Context) error {
		body, err := through.Clientset.CoreV1().RESTClient().Get().
			AbsPath("/api/v1/namespaces/default/services/http:serving:80/proxy-service/").DoRaw(ctx)
		if err == nil && strings.TrimSpace(string(body)) != "serving" {
			err = fmt.Errorf("the service answers %q", body)
		}
		return err
	})
}

// throughHub is a cluster as administrators of the hub reach it.
func throughHub(t *testing.T, kubeconfig string, version schema.GroupVersion, name string) *realcluster.Cluster {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return below(t, config, api.Path(version, name, fleet.SubresourceProxy), name)
}

// below is a cluster as users of an API server reach it at a path there.
func below(t *testing.T, server *rest.Config, path, name string) *realcluster.Cluster {
	t.Helper()
	config := rest.CopyConfig(server)
	config.Host += path
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &realcluster.Cluster{Name: name, Config: config, Clientset: clientset}
}

// reachesByCharts installs the ways into clusters on a hub in an existing cluster, and has its administrators take them: the cluster proxy
// as themselves, and a ClusterGateway as the managed service account of the gateway, through the same tunnel.
func (c cluster) reachesByCharts(t *testing.T, managed cluster, name string) {
	t.Helper()
	gates := map[string]any{"clusterProfile": true}
	c.installChart(t, fleet.NamespaceAddOn, "cluster-proxy", map[string]any{"tag": tag, "featureGates": gates,
		"userServer": map[string]any{"enabled": true}})
	c.installChart(t, fleet.NamespaceAddOn, "managed-serviceaccount", map[string]any{"tag": tag, "featureGates": gates})
	c.installChart(t, fleet.NamespaceAddOn, "cluster-gateway-addon-manager", map[string]any{
		"manualSecretManagement": false, "konnectivityEgress": true,
		"clusterGateway": map[string]any{"image": "ghcr.io/capstan-io/capstan-hub:" + tag}})
	for _, deployment := range []string{"cluster-proxy", "managed-serviceaccount-addon-manager", "cluster-gateway", "cluster-gateway-addon-manager"} {
		c.AwaitAvailable(t, fleet.NamespaceAddOn, deployment)
	}
	for _, addOn := range []string{fleet.AddOnClusterProxy, fleet.AddOnManagedServiceAccount, fleet.AddOnClusterGateway} {
		c.awaitAddOn(t, name, addOn)
	}
	reachesPod(t, managed.Cluster, throughHub(t, c.Kubeconfig, api.Aggregated, name))
	says(t, c.capstan(t, "get", "pods", "-n", "default", "--clusters", name), name, "serving")
	c.reachesByGateway(t, managed, name)
	address := c.userServer(t)
	c.reachesByUserServer(t, address, name)
	c.reachesByProfile(t, address, name)
}

// userServer is the address by which this machine reaches the user server of the cluster proxy.
func (c cluster) userServer(t *testing.T) string {
	t.Helper()
	pods := &corev1.PodList{}
	if err := c.Client.List(t.Context(), pods, client.InNamespace(fleet.NamespaceAddOn),
		client.MatchingLabels{"app.kubernetes.io/name": "cluster-proxy"}); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods of the cluster proxy: %v", len(pods.Items), err)
	}
	return c.PortForward(t, fleet.NamespaceAddOn, pods.Items[0].Name, 9092)
}

// reachesByUserServer asks the cluster with the token of the account that the gateway has there.
func (c cluster) reachesByUserServer(t *testing.T, address, name string) {
	t.Helper()
	ca, token := &corev1.Secret{}, &corev1.Secret{}
	for secret, key := range map[*corev1.Secret]client.ObjectKey{
		ca: {Namespace: fleet.NamespaceAddOn, Name: "proxy-server-ca"}, token: {Namespace: name, Name: "cluster-gateway"},
	} {
		if err := c.Client.Get(t.Context(), key, secret); err != nil {
			t.Fatal(err)
		}
	}
	clientset, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + address + "/" + name, BearerToken: string(token.Data[corev1.ServiceAccountTokenKey]),
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.Data[corev1.ServiceAccountRootCAKey],
			ServerName: "cluster-proxy-addon-user." + fleet.NamespaceAddOn + ".svc"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientset.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := clientset.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without the right to, nodes are listed with %v", err)
	}
}

// reachesByProfile asks the cluster as a client that knows nothing but its ClusterProfile, with the library of the SIG and the credential
// plugin of capstan: as the account that the gateway has there, whose token the hub copies next to the profile.
func (c cluster) reachesByProfile(t *testing.T, address, name string) {
	t.Helper()
	const namespace, account = "default", "cluster-gateway"
	c.capstan(t, "clusterset", "bind", "global", "--namespace", namespace)
	token := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: account}}
	const asks = `{"metadata": {"labels": {"authentication.open-cluster-management.io/sync-to-clusterprofile": "true"}}}`
	if err := c.Client.Patch(t.Context(), token, client.RawPatch(types.MergePatchType, []byte(asks))); err != nil {
		t.Fatal(err)
	}
	plugin, err := env.Binary("capstan")
	if err != nil {
		t.Fatal(err)
	}
	providers := clusteraccess.New([]clusteraccess.Provider{{Name: fleet.ClusterManagerOfProfiles, ExecConfig: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: plugin, ProvideClusterInfo: true,
		Args: []string{"credentials", "--kubeconfig", c.Kubeconfig, "--namespace", namespace, "--managed-serviceaccount", account},
	}}})
	inventory, err := versioned.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name + "-" + account}, &corev1.Secret{}); err != nil {
			return err
		}
		profile, err := inventory.ApisV1alpha1().ClusterProfiles(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		config, err := providers.BuildConfigFromCP(profile)
		if err != nil {
			return err
		}
		if want := "https://cluster-proxy-addon-user." + fleet.NamespaceAddOn + ":9092/" + name; config.Host != want {
			return fmt.Errorf("the server of the ClusterProfile is %s, want %s", config.Host, want)
		}
		config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		clientset, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	})
}

// reachesByGateway takes the account of the gateway, which the cluster gives no rights at first.
func (c cluster) reachesByGateway(t *testing.T, managed cluster, name string) {
	t.Helper()
	gateway := &unstructured.Unstructured{}
	gateway.SetGroupVersionKind(gatewayv1alpha1.GroupVersion.WithKind("ClusterGateway"))
	c.Eventually(t, func(ctx context.Context) error { // the API server learns a moment after the pod is ready that it serves the group
		return c.Client.Get(ctx, client.ObjectKey{Name: name}, gateway)
	})
	for want, path := range map[string][]string{
		"ServiceAccountToken": {"spec", "access", "credential", "type"}, "ClusterProxy": {"spec", "access", "endpoint", "type"},
	} {
		if got, _, _ := unstructured.NestedString(gateway.Object, path...); got != want {
			t.Errorf("%v of the ClusterGateway is %q, want %q", path, got, want)
		}
	}
	ask := func(path ...string) ([]byte, error) {
		whole := append([]string{"/apis", gatewayv1alpha1.GroupVersion.String(), "clustergateways", name, "proxy"}, path...)
		result := c.Clientset.Discovery().RESTClient().Get().AbsPath(whole...).Do(t.Context())
		body, err := result.Raw()
		if err != nil {
			err = result.Error() // with the message of the server
		}
		return body, err
	}
	if body, err := ask("healthz"); err != nil || string(body) != "ok" {
		t.Errorf("healthz of the cluster is %q, %v", body, err)
	}
	const user = `User "system:serviceaccount:open-cluster-management-agent-addon:cluster-gateway" cannot list resource "namespaces"`
	if _, err := ask("api", "v1", "namespaces"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), user) {
		t.Errorf("without rights on the cluster the answer is %v, want %s", err, user)
	}
	managed.Apply(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: cluster-gateway-edit},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [
		{kind: ServiceAccount, name: cluster-gateway, namespace: open-cluster-management-agent-addon}]}`)
	c.Eventually(t, func(context.Context) error {
		body, err := ask("api", "v1", "namespaces")
		if err == nil && !strings.Contains(string(body), "kube-system") {
			err = fmt.Errorf("the cluster answers %q", body)
		}
		return err
	})
	usesPod(t, below(t, c.Config, "/apis/"+gatewayv1alpha1.GroupVersion.String()+"/clustergateways/"+name+"/proxy", name))
}
