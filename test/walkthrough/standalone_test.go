package walkthrough

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/realcluster"
	"github.com/capstan-io/capstan/test/realcluster/node"
)

// plane is a standalone hub that Helm installs in a namespace of a cluster.
type plane struct {
	hosting   *realcluster.Cluster
	namespace string
	// exposure is the values of the chart that have the hub reached at an address.
	exposure string
	// address is where this machine reaches the hub; empty if only its cluster does.
	address string
}

// atNodePort is a hub that is reached at a port of the nodes.
func atNodePort(hosting *realcluster.Cluster, namespace string, port int) plane {
	return plane{
		hosting: hosting, namespace: namespace, address: net.JoinHostPort(hosting.NodeIP, strconv.Itoa(port)),
		exposure: fmt.Sprintf("nodeport: {enabled: true, port: %d}\napiserver: {externalHostname: %q, externalPort: %[1]d}\n", port, hosting.NodeIP),
	}
}

// release is that of every plane.
const release = "multicluster-controlplane"

func (p plane) helm(t *testing.T) *action.Configuration {
	t.Helper()
	return helm(t, p.hosting, p.namespace)
}

// helm works on releases in a namespace of a cluster.
func helm(t *testing.T, on *realcluster.Cluster, namespace string) *action.Configuration {
	t.Helper()
	access := genericclioptions.NewConfigFlags(true)
	access.KubeConfig, access.Namespace = &on.Kubeconfig, &namespace
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := config.Init(access, namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return config
}

// loadChart reads a chart of this commit.
func loadChart(t *testing.T, name string) *chart.Chart {
	t.Helper()
	loaded, err := loader.LoadDir(filepath.Join("..", "..", "deploy", "charts", name))
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// apply installs or upgrades the hub, and waits until it is up.
func (p plane) apply(t *testing.T, values string) {
	t.Helper()
	p.upgradeOrInstall(t, values)
	p.awaitUp(t)
}

func (p plane) upgradeOrInstall(t *testing.T, values string) {
	t.Helper()
	loaded, all := loadChart(t, "capstan-hub"), map[string]any{}
	values += fmt.Sprintf("\nimage: ghcr.io/capstan-io/capstan-hub:%s\n%s", tag, p.exposure)
	if err := yaml.Unmarshal([]byte(values), &all); err != nil {
		t.Fatal(err)
	}
	var err error
	config := p.helm(t)
	if revisions, _ := config.Releases.History(release); len(revisions) > 0 {
		upgrade := action.NewUpgrade(config)
		upgrade.Namespace, upgrade.WaitStrategy = p.namespace, kube.HookOnlyStrategy
		_, err = upgrade.RunWithContext(t.Context(), release, loaded, all)
	} else {
		install := action.NewInstall(config)
		install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy = release, p.namespace, true, kube.HookOnlyStrategy
		_, err = install.RunWithContext(t.Context(), loaded, all)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitUp waits until the hub is available, and reached from this machine: kube-proxy learns after the others that a pod is ready.
func (p plane) awaitUp(t *testing.T) {
	t.Helper()
	p.hosting.AwaitAvailable(t, p.namespace, "multicluster-controlplane")
	if p.address == "" {
		return
	}
	p.hosting.Eventually(t, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (p plane) uninstall(t *testing.T) {
	t.Helper()
	uninstall := action.NewUninstall(p.helm(t))
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if _, err := uninstall.Run(release); err != nil {
		t.Fatal(err)
	}
}

// kubeconfig is the file with the access of the administrator, as the documentation says to get it.
func (p plane) kubeconfig(t *testing.T) string {
	t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: p.namespace, Name: "multicluster-controlplane-kubeconfig"}
	if err := p.hosting.Client.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hub.kubeconfig")
	if err := os.WriteFile(file, secret.Data["kubeconfig"], 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// administrator is a client of the hub.
func (p plane) administrator(t *testing.T) client.WithWatch {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	return env.ClientFor(t, config)
}

// standaloneCommand runs the command line, which must succeed, with a kubeconfig.
func standaloneCommand(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	out, err := capstan(t, kubeconfig, t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// bringPod has the hub bring a pod to a cluster, where it runs.
func (p plane) bringPod(t *testing.T, hub client.Client, name string, managed *realcluster.Cluster, pod string) {
	t.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: pod}}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":%q},"spec":{"terminationGracePeriodSeconds":1,"containers":[`+
			`{"name":"hello","image":%q,"imagePullPolicy":"IfNotPresent","command":["sleep","3600"]}]}}`, pod, realcluster.TestImage)}}}
	p.hosting.Eventually(t, func(ctx context.Context) error { return client.IgnoreAlreadyExists(hub.Create(ctx, work)) })
	managed.AwaitPhase(t, "default", pod, corev1.PodRunning)
	p.hosting.Eventually(t, func(ctx context.Context) error {
		if err := hub.Get(ctx, client.ObjectKeyFromObject(work), work); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionAvailable) {
			return fmt.Errorf("the work has the conditions %v", work.Status.Conditions)
		}
		return nil
	})
}

// takeAway has the hub take all of its works from a cluster.
func (p plane) takeAway(t *testing.T, hub client.Client, name string) {
	t.Helper()
	if err := hub.DeleteAllOf(t.Context(), &workv1.ManifestWork{}, client.InNamespace(name)); err != nil {
		t.Fatal(err)
	}
	p.hosting.Eventually(t, func(ctx context.Context) error {
		works := &workv1.ManifestWorkList{}
		if err := hub.List(ctx, works, client.InNamespace(name)); err != nil {
			return err
		}
		if len(works.Items) > 0 {
			return fmt.Errorf("%d works are left", len(works.Items))
		}
		return nil
	})
}

// awaitManaged waits until a cluster has joined, and is available.
func (p plane) awaitManaged(t *testing.T, hub client.Client, name string) {
	t.Helper()
	p.hosting.Eventually(t, func(ctx context.Context) error {
		managed := &clusterv1.ManagedCluster{}
		if err := hub.Get(ctx, client.ObjectKey{Name: name}, managed); err != nil {
			return err
		}
		for _, condition := range []string{fleet.ConditionJoined, fleet.ConditionClusterAvailable} {
			if !meta.IsStatusConditionTrue(managed.Status.Conditions, condition) {
				return fmt.Errorf("cluster %s is not %s: %v", name, condition, managed.Status.Conditions)
			}
		}
		return nil
	})
}

// A standalone hub is installed with Helm, another cluster joins it and is reached through it, users of the hosting cluster are known to
// it, and it manages the hosting cluster itself. It goes on when its pod is killed; when it is uninstalled, its volume stays and nothing
// else.
//
// CA-43, CG-02, CG-07, CP-07, HC-07, SC-09, SC-15, SC-20, SC-21, SC-24, SC-25, CA-15, CA-18
func TestStandaloneHub(t *testing.T) {
	t.Parallel()
	clusters := start(t, "plane", "edge")
	hosting, edge := clusters[0].Cluster, clusters[1]
	clusters[0].importImages(t, "capstan-hub")
	edge.importImages(t, "capstan-agent")
	p := atNodePort(hosting, "multicluster-controlplane", 30443)
	// There is nothing that provides volumes.
	const disk = "/run/disk"
	if _, err := hosting.NodeExec(t.Context(), "mkdir", "--mode=0777", disk); err != nil {
		t.Fatal(err)
	}
	hosting.Apply(t, `{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk}, spec: {capacity: {storage: 1Gi},
		accessModes: [ReadWriteOnce], hostPath: {path: `+disk+`}}}`)
	before := hosting.Inventory(t)
	p.apply(t, "enableSelfManagement: true\nselfManagementClusterName: home\nenableDelegatingAuthentication: true\n")
	kubeconfig := p.kubeconfig(t)
	hub := p.administrator(t)

	token := standaloneCommand(t, kubeconfig, "get", "token", "--use-bootstrap-token")
	edge.join(t, token, "edge", "--singleton")
	standaloneCommand(t, kubeconfig, "accept", "--clusters", "edge", "--wait")
	p.awaitManaged(t, hub, "edge")
	p.awaitManaged(t, hub, "home")
	p.bringPod(t, hub, "edge", edge.Cluster, "on-the-edge")
	p.bringPod(t, hub, "home", hosting, "at-home")
	p.knowsAccounts(t)
	t.Run("tutorial", func(t *testing.T) { p.tutorial(t, edge) })                  //nolint:paralleltest // of the same hub
	t.Run("reach", func(t *testing.T) { p.reaches(t, hub, edge.Cluster, "edge") }) //nolint:paralleltest // the hub is killed after it

	for _, pod := range hosting.Pods(t, p.namespace, nil) {
		if err := hosting.Client.Delete(t.Context(), &pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	p.awaitUp(t)
	p.bringPod(t, hub, "edge", edge.Cluster, "after-the-kill")
	p.bringPod(t, hub, "home", hosting, "after-the-kill")

	p.takeAway(t, hub, "home")
	p.apply(t, "enableSelfManagement: false\n")
	hosting.Eventually(t, func(ctx context.Context) error {
		err := hub.Get(ctx, client.ObjectKey{Name: "home"}, &clusterv1.ManagedCluster{})
		if err == nil {
			err = errors.New("the cluster that the hub managed is still there")
		}
		return client.IgnoreNotFound(err)
	})
	p.uninstall(t)
	hosting.Eventually(t, func(context.Context) error {
		var left []string
		for line := range strings.Lines(before.Compare(hosting.Inventory(t))) {
			switch {
			case strings.Contains(line, "persistentvolumeclaims "+p.namespace+"/"), strings.Contains(line, "namespaces "+p.namespace),
				strings.Contains(line, "customresourcedefinitions."), strings.Contains(line, " "+p.namespace+"/default"),
				strings.Contains(line, " "+p.namespace+"/kube-root-ca.crt"):
			default:
				left = append(left, line)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("left are:\n%s", strings.Join(left, ""))
		}
		return nil
	})
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: p.namespace, Name: "multicluster-controlplane-pvc-volume"}
	if err := hosting.Client.Get(t.Context(), key, claim); err != nil {
		t.Error(err)
	}
}

// knowsAccounts checks that service accounts of the hosting cluster are known to the hub, under a name of their own.
func (p plane) knowsAccounts(t *testing.T) {
	t.Helper()
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = "default", "default"
	issued := &authenticationv1.TokenRequest{}
	if err := p.hosting.Client.SubResource("token").Create(t.Context(), account, issued); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	guest := rest.AnonymousClientConfig(config)
	guest.BearerToken = issued.Status.Token
	review := &authenticationv1.SelfSubjectReview{}
	if err := env.ClientFor(t, guest).Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if got, want := review.Status.UserInfo.Username, "hosting-cluster:system:serviceaccount:default:default"; got != want {
		t.Errorf("the hub takes the account for %q, want %q", got, want)
	}
}

// Two replicas of a standalone hub on an external etcd, without volumes, are one hub: when the pod of the leader is killed, and when they
// are replaced by an upgrade, users go on with the access that they have, and so do agents with their works: the hub's own, and one that
// has joined from the same cluster as any other would.
//
// SC-11, SC-16, SC-21, SC-24, KL-34, gap O8, gap O15
func TestStandaloneReplicas(t *testing.T) {
	t.Parallel()
	started := start(t, "replicas")[0]
	started.importImages(t, "capstan-hub", "capstan-agent")
	hosting := started.Cluster
	hosting.Apply(t, etcdOfReplicas)
	hosting.AwaitAvailable(t, "etcd", "etcd")
	p := atNodePort(hosting, "replicas", 30444)
	values := "replicas: 2\netcd: {mode: external, servers: ['http://etcd.etcd.svc:2379']}\nenableSelfManagement: true\n" +
		"selfManagementClusterName: home\n"
	p.apply(t, values)
	hub := p.administrator(t)
	p.awaitManaged(t, hub, "home")
	p.bringPod(t, hub, "home", hosting, "before")
	p.joinsFromTheSameCluster(t, hub, started, "neighbour")
	p.bringPod(t, hub, "neighbour", hosting, "by-the-nodeport")

	leader := p.leader(t, hub, "")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: leader}}
	if err := hosting.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	p.leader(t, hub, leader)
	p.bringPod(t, hub, "home", hosting, "after-the-leader")

	p.awaitUp(t)
	p.apply(t, values+"podLabels: {upgraded: 'true'}\n")
	p.bringPod(t, hub, "home", hosting, "after-the-upgrade")
	p.bringPod(t, hub, "neighbour", hosting, "by-the-nodeport-again")
	p.takeAway(t, hub, "neighbour")
	p.takeAway(t, hub, "home")
}

// When the node of a standalone hub is drained, the hub moves to another one with its volume, and back, and so does an agent of the same
// cluster. Users and clusters go on at the address that they know, with the access that they have.
//
// HC-07, KL-34, SC-11, SC-21, SC-24
func TestStandaloneHubMoves(t *testing.T) {
	slow(t)
	t.Parallel()
	disk := t.TempDir() // which all nodes reach
	if err := os.Chmod(disk, 0o777); err != nil {
		t.Fatal(err)
	}
	clusters := realcluster.StartAll(t, realcluster.Options{Name: "first", Workers: []string{"second"}}, realcluster.Options{Name: "edge"})
	hosting, edge := newCluster(t, clusters[0]), newCluster(t, clusters[1])
	hosting.importImages(t, "capstan-hub", "capstan-agent")
	edge.importImages(t, "capstan-agent")
	hosting.Apply(t, `{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk}, spec: {capacity: {storage: 1Gi},
		accessModes: [ReadWriteOnce], hostPath: {path: `+disk+`}}}`)
	p := atNodePort(hosting.Cluster, "moves", 30445)
	p.apply(t, "enableSelfManagement: true\nselfManagementClusterName: home\n")
	hub, kubeconfig := p.administrator(t), p.kubeconfig(t)
	edge.join(t, standaloneCommand(t, kubeconfig, "get", "token", "--use-bootstrap-token"), "edge", "--singleton")
	standaloneCommand(t, kubeconfig, "accept", "--clusters", "edge", "--wait")
	p.awaitManaged(t, hub, "edge")
	p.awaitManaged(t, hub, "home")
	p.joinsFromTheSameCluster(t, hub, hosting, "neighbour")

	from := p.node(t)
	for move, to := range []string{other(from), from} {
		hosting.drain(t, other(to))
		p.awaitUp(t)
		if now := p.node(t); now != to {
			t.Fatalf("the hub is on node %s", now)
		}
		p.bringPod(t, hub, "edge", edge.Cluster, fmt.Sprintf("edge-%d", move))
		p.bringPod(t, hub, "home", hosting.Cluster, fmt.Sprintf("home-%d", move))
		p.bringPod(t, hub, "neighbour", hosting.Cluster, fmt.Sprintf("neighbour-%d", move))
		for _, name := range []string{"edge", "home", "neighbour"} {
			p.awaitManaged(t, hub, name)
		}
		hosting.cordon(t, other(to), false)
	}
	for _, name := range []string{"edge", "neighbour", "home"} {
		p.takeAway(t, hub, name)
	}
}

// A hub that is exposed in its cluster alone is reached by the agent of that cluster at its Service, and by users at a forwarded port. When
// it gets a load balancer, it is reached at the address of that, and the agent that knows the Service goes on.
//
// SC-05, SC-24, HC-07
func TestStandaloneHubExposed(t *testing.T) {
	slow(t)
	t.Parallel()
	clusters := start(t, "exposed", "edge")
	hosting, edge := clusters[0], clusters[1]
	hosting.importImages(t, "capstan-hub", "capstan-agent")
	edge.importImages(t, "capstan-agent")
	const disk = "/run/disk"
	if _, err := hosting.NodeExec(t.Context(), "mkdir", "--mode=0777", disk); err != nil {
		t.Fatal(err)
	}
	const storage = "storage: {type: hostPath, hostPath: " + disk + "}"
	inCluster := plane{hosting: hosting.Cluster, namespace: "exposed"}
	inCluster.apply(t, storage)
	t.Run("in its cluster", func(t *testing.T) { //nolint:paralleltest // before the same hub has a load balancer
		inCluster.joinsByService(t, hosting, "neighbour")
	})

	balanced := inCluster
	balanced.exposure, balanced.address = "loadbalancer: {enabled: true}", net.JoinHostPort(hosting.NodeIP, "443")
	balanced.upgradeOrInstall(t, storage)
	balanced.assignLoadBalancer(t)
	balanced.awaitUp(t)
	hub, kubeconfig := balanced.administrator(t), balanced.kubeconfig(t)
	token := standaloneCommand(t, kubeconfig, "get", "token", "--use-bootstrap-token")
	says(t, token, "https://"+balanced.address)
	edge.join(t, token, "edge", "--singleton")
	standaloneCommand(t, kubeconfig, "accept", "--clusters", "edge", "--wait")
	balanced.awaitManaged(t, hub, "edge")
	balanced.bringPod(t, hub, "edge", edge.Cluster, "by-the-load-balancer")
	balanced.bringPod(t, hub, "neighbour", hosting.Cluster, "by-the-service-again")
	balanced.takeAway(t, hub, "edge")
	balanced.takeAway(t, hub, "neighbour")
}

// joinsByService has the cluster of the hub join it at its Service, as the notes of the chart say, but for the forwarded port, which is
// that of the pod here.
func (p plane) joinsByService(t *testing.T, from cluster, name string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(p.kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	access := config.Clusters["multicluster-controlplane"]
	service := access.Server
	access.Server = "https://" + p.hosting.PortForward(t, p.namespace, p.hosting.Pods(t, p.namespace, nil)[0].Name, 9443)
	forwarded := filepath.Join(t.TempDir(), "hub.kubeconfig")
	if err := clientcmd.WriteToFile(*config, forwarded); err != nil {
		t.Fatal(err)
	}
	token := standaloneCommand(t, forwarded, "get", "token", "--use-bootstrap-token")
	says(t, token, service)
	from.join(t, strings.ReplaceAll(token, service, access.Server), name, "--singleton", "--force-internal-endpoint-lookup")
	standaloneCommand(t, forwarded, "accept", "--clusters", name, "--wait")
	administrator, err := clientcmd.BuildConfigFromFlags("", forwarded)
	if err != nil {
		t.Fatal(err)
	}
	hub := env.ClientFor(t, administrator)
	p.awaitManaged(t, hub, name)
	p.bringPod(t, hub, name, p.hosting, "by-the-service")
}

// assignLoadBalancer gives the Service of the hub the address of the node, as a provider of load balancers on the nodes does.
func (p plane) assignLoadBalancer(t *testing.T) {
	t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "multicluster-controlplane"}}
	ingress := fmt.Appendf(nil, `{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, p.hosting.NodeIP)
	if err := p.hosting.Client.Status().Patch(t.Context(), service, client.RawPatch(types.MergePatchType, ingress)); err != nil {
		t.Fatal(err)
	}
}

// node is that of the pod of the hub.
func (p plane) node(t *testing.T) string {
	t.Helper()
	pods := p.hosting.Pods(t, p.namespace, nil)
	if len(pods) != 1 {
		t.Fatalf("the hub has %d pods", len(pods))
	}
	return pods[0].Spec.NodeName
}

// other is the other one of the two nodes.
func other(node string) string {
	if node == "first" {
		return "second"
	}
	return "first"
}

// joinsFromTheSameCluster has the cluster of the hub join it under a name. The agent reaches the hub at the port of the nodes, and
// NetworkPolicies, which are on by default, hold for its pods: they apply to the port of the hub's pods instead, which no kubeconfig has.
func (p plane) joinsFromTheSameCluster(t *testing.T, hub client.Client, from cluster, name string) {
	t.Helper()
	kubeconfig := p.kubeconfig(t)
	token := standaloneCommand(t, kubeconfig, "get", "token", "--use-bootstrap-token")
	says(t, token, p.address)
	from.join(t, token, name, "--singleton")
	standaloneCommand(t, kubeconfig, "accept", "--clusters", name, "--wait")
	p.awaitManaged(t, hub, name)
	policies := &networkingv1.NetworkPolicyList{}
	if err := from.Client.List(t.Context(), policies, client.InNamespace(fleet.NamespaceAgent)); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(policies.Items, func(policy networkingv1.NetworkPolicy) bool { return policy.Name == "default-deny-all" }) {
		t.Errorf("what the pods of the agent may send is restricted by %v", policies.Items)
	}
}

// leader is the pod in which the agent of the hub runs, which is not the one that was before.
func (p plane) leader(t *testing.T, hub client.Client, before string) (pod string) {
	t.Helper()
	p.hosting.Eventually(t, func(ctx context.Context) error {
		lease := &coordinationv1.Lease{}
		if err := hub.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "capstan-hub-self-management"}, lease); err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil {
			return errors.New("nobody leads")
		}
		pod, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
		if pod == "" || pod == before {
			return fmt.Errorf("the leader is %q", pod)
		}
		return nil
	})
	return pod
}

// etcdOfReplicas runs the etcd that the node has, in a pod.
const etcdOfReplicas = `
apiVersion: v1
kind: Namespace
metadata: {name: etcd}
---
apiVersion: v1
kind: Service
metadata: {name: etcd, namespace: etcd}
spec:
  selector: {app: etcd}
  ports:
  - {port: 2379}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: etcd, namespace: etcd}
spec:
  selector:
    matchLabels: {app: etcd}
  template:
    metadata:
      labels: {app: etcd}
    spec:
      containers:
      - name: etcd
        image: ` + realcluster.TestImage + `
        imagePullPolicy: Never
        command:
        - /hyperkube
        - etcd
        - --data-dir=/data/etcd
        - --listen-client-urls=http://0.0.0.0:2379
        - --advertise-client-urls=http://etcd.etcd.svc:2379
        readinessProbe:
          tcpSocket: {port: 2379}
          periodSeconds: 1
        volumeMounts:
        - {name: data, mountPath: /data}
        - {name: program, mountPath: /hyperkube}
      volumes:
      - name: data
        emptyDir: {}
      - name: program
        hostPath: {path: ` + node.HyperkubePath + `, type: File}
`
