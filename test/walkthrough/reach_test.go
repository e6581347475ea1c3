package walkthrough

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// and connect to one: as themselves, and as the account of the gateway. The cluster has to give both the right to that.
func (p plane) reaches(t *testing.T, hub client.Client, managed *realcluster.Cluster, name string) {
	t.Helper()
	p.enables(t, hub, name, fleet.AddOnManagedServiceAccount, fleet.AddOnClusterProxy, fleet.AddOnClusterGateway)
	through := throughHub(t, p.kubeconfig(t), api.Standalone, name)
	reachesPod(t, managed, through)
	u := newUser(t, p.kubeconfig(t))
	u.usesPod(t, managed, name)
	u.usesHelm(t, managed, name)
	u.requestsByGateway(t, managed, name)
	u.usesPodByGateway(t)
	reachesService(t, hub, managed, through)
}

// enables has add-ons work on a cluster.
func (p plane) enables(t *testing.T, hub client.Client, name string, addOns ...string) {
	t.Helper()
	standaloneCommand(t, p.kubeconfig(t), "addon", "enable", "--names", strings.Join(addOns, ","), "--clusters", name)
	for _, enabled := range addOns {
		addOn := &addonv1beta1.ManagedClusterAddOn{}
		p.hosting.Eventually(t, func(ctx context.Context) error {
			if err := hub.Get(ctx, client.ObjectKey{Namespace: name, Name: enabled}, addOn); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable) {
				return fmt.Errorf("the add-on %s has the conditions %v", enabled, addOn.Status.Conditions)
			}
			return nil
		})
	}
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
	if pod, ok := env.Receive(t, watch.ResultChan()).Object.(*corev1.Pod); !ok || pod.Name != "serving" {
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
	t.Run("port", func(t *testing.T) { connects(t, through) }) //nolint:paralleltest // the connection must end with it
}

// connects makes a request to the pod by a forwarded port.
func connects(t *testing.T, through *realcluster.Cluster) {
	t.Helper()
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

// catPod writes to its log what comes in by a named pipe, and ends with what comes in after that.
const catPod = `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: cat}, spec: {terminationGracePeriodSeconds: 1,
	restartPolicy: Never, containers: [{name: cat, image: "` + realcluster.TestImage + `", imagePullPolicy: Never,
	command: [sh, -c, "mkfifo /tmp/in; echo started; cat /tmp/in; exec cat /tmp/in"],
	readinessProbe: {exec: {command: [test, -p, /tmp/in]}, periodSeconds: 1}}]}}`

// What users do with pods of the cluster $CLUSTER_NAME, by the commands of capstan.
const (
	copyThereAndBack = `
echo hello >here
capstan cp -n default here cat:/tmp/there --cluster "$CLUSTER_NAME"
capstan exec -n default cat --cluster "$CLUSTER_NAME" -- cat /tmp/there
capstan cp -n default cat:/tmp/there back --cluster "$CLUSTER_NAME"
cmp here back`

	// The address is in the first line: Forwarding from ADDRESS -> 8080.
	requestForwarded = `
read -r forwarding from address to <&3
testpod get "http://$address/"`

	// The log ends with the pod. What a container writes in its last moment may be missing, and a command in it may end with it, too.
	writeToLog = `
read -r first <&3
echo heard | capstan exec -i -n default cat --cluster "$CLUSTER_NAME" -- sh -c 'cat >/tmp/in'
read -r next <&3
echo "began with $first, and goes on with $next"
capstan exec -n default cat --cluster "$CLUSTER_NAME" -- sh -c ': >/tmp/in' || :
wait $!`
)

// meanwhile has a shell run a command that goes on, and others that read its output by file descriptor 3.
func meanwhile(command, others string) string {
	return "\nrm -f output\nmkfifo output\n" + command + " >output &\ntrap 'kill $! 2>/dev/null || :' EXIT\nexec 3<output" + others
}

// usesPod copies files to a pod and from there, connects to one, runs commands, and follows a log.
func (u user) usesPod(t *testing.T, managed *realcluster.Cluster, name string) {
	t.Helper()
	managed.Apply(t, catPod)
	managed.AwaitPod(t, "default", "cat")
	for _, do := range []struct{ commands, want string }{
		{copyThereAndBack, "hello"},
		{meanwhile(`capstan port-forward -n default serving :8080 --cluster "$CLUSTER_NAME"`, requestForwarded), "serving"},
		{meanwhile(`capstan logs -f -n default cat --cluster "$CLUSTER_NAME"`, writeToLog), "began with started, and goes on with heard"},
	} {
		u.prints(t, "CLUSTER_NAME="+name+do.commands, do.want)
	}
}

// prints runs commands, which have to print a line.
func (u user) prints(t *testing.T, commands, line string) {
	t.Helper()
	if out := rows(u.does(t, commands)); !slices.Contains(out, line) {
		t.Errorf("%s\nprints no line %q:\n%s", commands, line, strings.Join(out, "\n"))
	}
}

// rows are the lines of a text, with one space between words.
func rows(text string) (all []string) {
	for line := range strings.Lines(text) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

// podsOfRelease is a template of a Helm chart.
const podsOfRelease = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  selector:
    matchLabels: {app: {{ .Release.Name }} }
  template:
    metadata:
      labels: {app: {{ .Release.Name }} }
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: pause, image: "` + realcluster.TestImage + `", imagePullPolicy: Never, command: [testpod, pause]}
`

// usesHelm has Helm install a release by the kubeconfig that capstan makes of the cluster, wait until its pods run, and uninstall it.
func (u user) usesHelm(t *testing.T, managed *realcluster.Cluster, name string) {
	t.Helper()
	file := filepath.Join(u.dir, "helm.kubeconfig")
	u.does(t, "capstan kubeconfig "+name+" -o "+file)
	config := helm(t, &realcluster.Cluster{Name: name, Kubeconfig: file}, "default")
	install := action.NewInstall(config)
	install.ReleaseName, install.Namespace = "web", "default"
	install.WaitStrategy, install.Timeout = kube.StatusWatcherStrategy, commandTimeout
	web := &chart.Chart{Metadata: &chart.Metadata{APIVersion: chart.APIVersionV2, Name: "web", Version: "1.0.0"},
		Templates: []*common.File{{Name: "templates/pods.yaml", Data: []byte(podsOfRelease)}}}
	if _, err := install.RunWithContext(t.Context(), web, map[string]any{}); err != nil {
		t.Fatal(err)
	}
	deployment, err := managed.Clientset.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || deployment.Status.AvailableReplicas != 1 {
		t.Errorf("once Helm has waited, the cluster has %d pods of the release: %v", deployment.Status.AvailableReplicas, err)
	}
	uninstall := action.NewUninstall(config)
	uninstall.WaitStrategy, uninstall.Timeout = kube.StatusWatcherStrategy, commandTimeout
	if _, err := uninstall.Run("web"); err != nil {
		t.Fatal(err)
	}
	managed.AwaitGone(t, deployment)
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
	config.Host += api.Path(version, name, fleet.SubresourceProxy)
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &realcluster.Cluster{Name: name, Config: config, Clientset: clientset}
}

// What the guide of Open Cluster Management to pushing requests to clusters has an administrator of the hub type. Only the URL of the
// repository ocm, which has the charts of this commit, is another one. editKubeconfig makes the change that the guide shows of a file.
const (
	addCharts    = "helm repo add ocm "
	updateCharts = "helm repo update"
	searchCharts = "helm search repo ocm"
)

var installsOfGuide = []string{
	"helm -n open-cluster-management-addon install cluster-proxy ocm/cluster-proxy",
	"helm -n open-cluster-management-addon install managed-serviceaccount ocm/managed-serviceaccount",
	"helm -n open-cluster-management-addon install cluster-gateway ocm/cluster-gateway-addon-manager" +
		" --set manualSecretManagement=false --set konnectivityEgress=true",
}

const (
	listAddOns    = "kubectl get managedclusteraddon -A"
	listGateways  = "kubectl get clustergateway"
	requestHealth = `kubectl get --raw="/apis/cluster.core.oam.dev/v1alpha1/clustergateways/${CLUSTER_NAME}/proxy/healthz"`

	editKubeconfig = `sed "s|server: .*|&/apis/cluster.core.oam.dev/v1alpha1/clustergateways/${CLUSTER_NAME}/proxy|" "$KUBECONFIG" ` +
		`>managed1.kubeconfig`
	listNamespaces = "KUBECONFIG=managed1.kubeconfig kubectl get ns"
)

// reachesByCharts installs the ways into clusters on a hub in an existing cluster, and has its administrators take them: a ClusterGateway,
// as the managed service account of the gateway, and the cluster proxy, as themselves, through the same tunnel.
func (c cluster) reachesByCharts(t *testing.T, managed cluster, name string) {
	t.Helper()
	u, h := newUser(t, c.Kubeconfig), newHelmUser(t, c)
	c.followsGuide(t, u, h, managed.Cluster, name)
	reachesPod(t, managed.Cluster, throughHub(t, c.Kubeconfig, api.Aggregated, name))
	says(t, c.capstan(t, "get", "pods", "-n", "default", "--clusters", name), name, "serving")
	u.usesPodByGateway(t)
	h.does(t, "helm -n open-cluster-management-addon upgrade cluster-proxy ocm/cluster-proxy --set featureGates.clusterProfile=true")
	h.does(t, "helm -n open-cluster-management-addon upgrade managed-serviceaccount ocm/managed-serviceaccount"+
		" --set featureGates.clusterProfile=true")
	c.AwaitAvailable(t, fleet.NamespaceAddOn, "cluster-proxy")
	c.AwaitAvailable(t, fleet.NamespaceAddOn, "managed-serviceaccount-addon-manager")
	address := c.userServer(t)
	c.reachesByUserServer(t, address, name)
	c.reachesByProfile(t, address, name)
}

// followsGuide does what the guide says, and expects what the guide prints.
func (c cluster) followsGuide(t *testing.T, u user, h helmUser, managed *realcluster.Cluster, name string) {
	t.Helper()
	c.installsByGuide(t, u, h)
	addOns := []string{fleet.AddOnClusterGateway, fleet.AddOnClusterProxy, fleet.AddOnManagedServiceAccount}
	for _, addOn := range addOns {
		c.awaitAddOn(t, name, addOn)
	}
	listed := rows(u.does(t, listAddOns))
	if !slices.Contains(listed, "NAMESPACE NAME AVAILABLE DEGRADED PROGRESSING") {
		t.Errorf("%s prints other columns:\n%s", listAddOns, strings.Join(listed, "\n"))
	}
	for _, addOn := range addOns {
		want := name + " " + addOn + " True"
		if !slices.ContainsFunc(listed, func(row string) bool { return row == want || strings.HasPrefix(row, want+" ") }) {
			t.Errorf("%s does not print %q:\n%s", listAddOns, want, strings.Join(listed, "\n"))
		}
	}
	c.Eventually(t, func(ctx context.Context) error { // the API server learns a moment after the pod is ready that it serves the group
		out, err := u.try(ctx, listGateways)
		want := []string{"NAME PROVIDER CREDENTIAL-TYPE ENDPOINT-TYPE", name + " ServiceAccountToken ClusterProxy"}
		if listed := rows(out); err == nil && !slices.Equal(listed, want) {
			err = fmt.Errorf("%s prints %q, want %q", listGateways, listed, want)
		}
		return err
	})
	u.requestsByGateway(t, managed, name)
}

// installsByGuide installs the charts, and waits until they run. The guide does not say that their namespace has to be there.
func (c cluster) installsByGuide(t *testing.T, u user, h helmUser) {
	t.Helper()
	h.does(t, addCharts+serveCharts(t))
	h.does(t, updateCharts)
	found := h.does(t, searchCharts)
	for _, want := range []string{"ocm/cluster-gateway-addon-manager", "ocm/cluster-proxy", "ocm/managed-serviceaccount"} {
		if !slices.Contains(found, want) {
			t.Errorf("%s finds %q, not %s", searchCharts, found, want)
		}
	}
	c.tagImage(t, "capstan-hub", chartRelease)
	u.does(t, "kubectl create namespace open-cluster-management-addon")
	for _, command := range installsOfGuide {
		h.does(t, command)
	}
	for _, deployment := range []string{"cluster-proxy", "managed-serviceaccount-addon-manager", "cluster-gateway",
		"cluster-gateway-addon-manager"} {
		c.AwaitAvailable(t, fleet.NamespaceAddOn, deployment)
	}
}

// requestsByGateway takes the account of the gateway, which the cluster gives no rights at first.
func (u user) requestsByGateway(t *testing.T, managed *realcluster.Cluster, name string) {
	t.Helper()
	chosen := "export CLUSTER_NAME=" + name + "\n"
	if out := u.does(t, chosen+requestHealth); out != "ok" {
		t.Errorf("%s prints %q, want ok", requestHealth, out)
	}
	u.does(t, chosen+editKubeconfig)
	const account = "system:serviceaccount:open-cluster-management-agent-addon:cluster-gateway"
	says(t, u.does(t, "! "+listNamespaces), `Error from server (Forbidden): namespaces is forbidden: User "`+account+
		`" cannot list resource "namespaces" in API group "" at the cluster scope`)
	managed.Apply(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: cluster-gateway-edit},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [
		{kind: ServiceAccount, name: cluster-gateway, namespace: open-cluster-management-agent-addon}]}`)
	managed.Eventually(t, func(ctx context.Context) error { // the authorizer of the cluster may not know the binding yet
		out, err := u.try(ctx, listNamespaces)
		if err == nil && !strings.Contains(out, "kube-system") {
			err = fmt.Errorf("%s prints %q", listNamespaces, out)
		}
		return err
	})
}

// What users do by kubectl with the pod that serves. A watch of a list prints the list, and what changes after it.
const (
	watchPods = `kubectl get pods -n default -l app=serving --watch -o 'jsonpath={.metadata.name} {.metadata.labels.watched}{"\n"}'`
	changePod = `
read -r listed <&3
kubectl label pod serving -n default watched=yes
grep -m1 -x 'serving yes' <&3`

	requestInPod = `
read -r first <&3
kubectl exec -n default serving -- testpod get http://127.0.0.1:8080/followed
grep -m1 -x 'GET /followed' <&3`
)

// usesPodByGateway runs a command in the pod, follows its log, watches it, and connects to it, by the kubeconfig of the guide.
func (u user) usesPodByGateway(t *testing.T) {
	t.Helper()
	for _, do := range []struct{ commands, want string }{
		{"\nkubectl exec -n default serving -- echo hello", "hello"},
		{meanwhile("kubectl logs -f -n default serving", requestInPod), "GET /followed"},
		{meanwhile(watchPods, changePod), "serving yes"},
		{meanwhile("kubectl port-forward -n default serving :8080", requestForwarded), "serving"},
	} {
		u.prints(t, "export KUBECONFIG=managed1.kubeconfig"+do.commands, do.want)
	}
}

// userServer is the address by which this machine reaches the user server of the cluster proxy.
func (c cluster) userServer(t *testing.T) string {
	t.Helper()
	pods := c.Pods(t, fleet.NamespaceAddOn, map[string]string{"app.kubernetes.io/name": "cluster-proxy"})
	if len(pods) != 1 {
		t.Fatalf("there are %d pods of the cluster proxy", len(pods))
	}
	return c.PortForward(t, fleet.NamespaceAddOn, pods[0].Name, 9092)
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
	c.Eventually(t, func(ctx context.Context) error { // the agent of the cluster makes its tunnel to the upgraded cluster proxy
		if _, err := clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		_, err := clientset.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return errors.Join(errors.New("without the right to, a list of nodes is not forbidden"), err)
	})
}

// reachesByProfile asks the cluster as clients that know nothing but its ClusterProfile: as a service account of the hub, with the token
// that it has there, and as the account that the gateway has on the cluster, whose token the hub copies next to the profile.
func (c cluster) reachesByProfile(t *testing.T, address, name string) {
	t.Helper()
	const account = "cluster-gateway"
	c.capstan(t, "clusterset", "bind", "global", "--namespace", "default")
	kubeconfig := c.serviceAccount(t, "inventory", "open-cluster-management:cluster-proxy:user")
	c.Eventually(t, func(ctx context.Context) error {
		onCluster, err := c.byProfile(ctx, address, name, "--kubeconfig", kubeconfig)
		if err != nil {
			return err
		}
		review := &authenticationv1.SelfSubjectReview{}
		review, err = onCluster.AuthenticationV1().SelfSubjectReviews().Create(ctx, review, metav1.CreateOptions{})
		if want := "cluster:hub:system:serviceaccount:default:inventory"; err == nil && review.Status.UserInfo.Username != want {
			err = fmt.Errorf("on the cluster it is %q, want %q", review.Status.UserInfo.Username, want)
		}
		return err
	})
	token := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: account}}
	const asks = `{"metadata": {"labels": {"authentication.open-cluster-management.io/sync-to-clusterprofile": "true"}}}`
	if err := c.Client.Patch(t.Context(), token, client.RawPatch(types.MergePatchType, []byte(asks))); err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name + "-" + account}, &corev1.Secret{}); err != nil {
			return err
		}
		onCluster, err := c.byProfile(ctx, address, name, "--kubeconfig", c.Kubeconfig, "--namespace", "default",
			"--managed-serviceaccount", account)
		if err != nil {
			return err
		}
		_, err = onCluster.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	})
}

// serviceAccount makes a service account in namespace default with a ClusterRole, and returns a kubeconfig with its token.
func (c cluster) serviceAccount(t *testing.T, name, role string) (kubeconfig string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	c.create(t, account, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: name}}})
	issued := &authenticationv1.TokenRequest{}
	if err := c.Client.SubResource("token").Create(t.Context(), account, issued); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] = &clientcmdapi.AuthInfo{Token: issued.Status.Token}
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, string(content))
}

// byProfile is what the library of the SIG makes of a ClusterProfile and the credential plugin of capstan.
func (c cluster) byProfile(ctx context.Context, address, name string, args ...string) (*kubernetes.Clientset, error) {
	plugin, err := env.Binary("capstan")
	if err != nil {
		return nil, err
	}
	providers := clusteraccess.New([]clusteraccess.Provider{{Name: fleet.ClusterManagerOfProfiles, ExecConfig: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: plugin, ProvideClusterInfo: true, Args: append([]string{"credentials"}, args...),
	}}})
	inventory, err := versioned.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	profile, err := inventory.ApisV1alpha1().ClusterProfiles("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	config, err := providers.BuildConfigFromCP(profile)
	if err != nil {
		return nil, err
	}
	if want := "https://cluster-proxy-addon-user." + fleet.NamespaceAddOn + ":9092/" + name; config.Host != want {
		return nil, fmt.Errorf("the server of the ClusterProfile is %s, want %s", config.Host, want)
	}
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return kubernetes.NewForConfig(config)
}
