//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/realcluster"
)

// podFleet is a flag of its own, since pods and the API server of the cluster need memory, too.
var podFleet = flag.Int("pod-fleet", 1000, "how many clusters join the hub in a cluster")

const (
	// installations and joins are measured so often.
	installations = 3
	repairs       = 10
	// quiet is how long pods may take to settle before they count as idle.
	quiet = time.Minute
	// userOfJoin is whom clusters join as, with the token of "capstan get token".
	userOfJoin = "system:serviceaccount:" + fleet.NamespaceOperators + ":" + fleet.ServiceAccountBootstrap
)

// What a pod may take, in MB: processes of the hub, and of an agent.
const hubPodTarget, agentPodTarget = "80", "64"

// TestClusters measures, on clusters with real pods, how long "capstan init" and "capstan join" take, and what the pods take: idle, and
// with a fleet of simulated clusters.
func TestClusters(t *testing.T) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	r := newReport()
	t.Cleanup(func() {
		if err := errors.Join(r.print(os.Stdout), r.write(*out)); err != nil {
			t.Error(err)
		}
	})
	clusters := realcluster.StartAll(t, realcluster.Options{Name: "hub"}, realcluster.Options{Name: "managed"})
	b := &podBench{r: r, hub: clusters[0], managed: clusters[1]}
	b.overrides = writeFile(t, "overrides.json", []byte(`{"ocm": "test"}`))
	b.hubCA = writeFile(t, "ca.crt", b.hub.Config.CAData)
	for _, cluster := range clusters {
		cluster.Import(t, "../../bin/images/capstan-hub.tar", "../../bin/images/capstan-agent.tar")
	}
	b.measureInit(t)
	b.measureJoins(t)
	b.measureRepair(t)
	b.measurePods(t, "idle")
	b.measureFleet(t)
}

// podBench measures a hub and an agent in clusters.
type podBench struct {
	r            *report
	hub, managed *realcluster.Cluster
	// Files: the tag of the images, and the certificate authority of the hub.
	overrides, hubCA string
}

func writeFile(t *testing.T, name string, content []byte) (path string) {
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// add takes in the values of a measure, and shows them: the next may take minutes.
func (b *podBench) add(t *testing.T, name, unit, target string, values ...float64) {
	b.r.add(name, unit, target, values...)
	t.Logf("%s: %.4g %s", name, b.r.Measures[len(b.r.Measures)-1].Median, unit)
}

// capstan runs the command line against a cluster.
func (b *podBench) capstan(ctx context.Context, cluster *realcluster.Cluster, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "../../bin/capstan", args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	var errOut strings.Builder
	command.Stderr = &errOut
	text, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("capstan %s: %w\n%s%s", strings.Join(args, " "), err, text, errOut.String())
	}
	return string(text), nil
}

func (b *podBench) mustCapstan(t *testing.T, cluster *realcluster.Cluster, args ...string) string {
	text, err := b.capstan(t.Context(), cluster, args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// measureInit times "init --wait", which returns once all conditions of the ClusterManager are good. The last hub stays.
func (b *podBench) measureInit(t *testing.T) {
	var took []time.Duration
	for i := range installations {
		began := time.Now()
		b.mustCapstan(t, b.hub, "init", "--wait", "--bundle-version-overrides", b.overrides,
			"--feature-gates", "ManagedClusterAutoApproval=true", "--auto-approved-csr-identities", userOfJoin)
		took = append(took, time.Since(began))
		if i < installations-1 {
			b.mustCapstan(t, b.hub, "clean")
		}
	}
	b.add(t, "init --wait, until all conditions of the hub are good", "ms", "", milliseconds(took)...)
}

// measureJoins times "join --wait" until the cluster is Available, in two modes. The last agent stays.
func (b *podBench) measureJoins(t *testing.T) {
	for _, mode := range []string{"Singleton", "Default"} {
		var took []time.Duration
		for i := range installations {
			name := fmt.Sprintf("%s-%d", strings.ToLower(mode), i)
			join := b.joinCommand(t, name, mode)
			began := time.Now()
			b.mustCapstan(t, b.managed, join...)
			b.awaitAvailable(t, name)
			took = append(took, time.Since(began))
			if mode == "Default" && i == installations-1 {
				break
			}
			b.mustCapstan(t, b.managed, "unjoin", "--cluster-name", name, "--wait")
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if err := b.hub.Client.Delete(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			b.hub.AwaitGone(t, cluster)
		}
		b.add(t, "join --wait to Available, "+mode, "ms", "", milliseconds(took)...)
	}
}

func (b *podBench) joinCommand(t *testing.T, name, mode string) []string {
	command := []string{"join", "--wait", "--hub-token", b.token(t), "--hub-apiserver", b.hub.URL, "--cluster-name", name,
		"--ca-file", b.hubCA, "--bundle-version-overrides", b.overrides}
	if mode == "Singleton" {
		command = append(command, "--singleton")
	}
	return command
}

// token is one to join with.
func (b *podBench) token(t *testing.T) string {
	printed := struct {
		Token string `json:"hub-token"`
	}{}
	if err := json.Unmarshal([]byte(b.mustCapstan(t, b.hub, "get", "token", "-o", "json")), &printed); err != nil {
		t.Fatal(err)
	}
	return printed.Token
}

func (b *podBench) awaitAvailable(t *testing.T, name string) {
	b.hub.Eventually(t, func(ctx context.Context) error {
		cluster := &clusterv1.ManagedCluster{}
		if err := b.hub.Client.Get(ctx, types.NamespacedName{Name: name}, cluster); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable) {
			return fmt.Errorf("the cluster has the conditions %v", cluster.Status.Conditions)
		}
		return nil
	})
}

// measureRepair times until what somebody deletes is back.
func (b *podBench) measureRepair(t *testing.T) {
	for _, object := range []struct {
		cluster *realcluster.Cluster
		client.Object
	}{
		{b.hub, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: "cluster-manager-work-webhook"}}},
		{b.hub, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: "work-webhook-serving-cert"}}},
		{b.hub, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:cluster-manager-placement:controller"}}},
		{b.managed, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAgent, Name: "klusterlet-work-agent"}}},
	} {
		var took []time.Duration
		for range repairs {
			took = append(took, repair(t, object.cluster, object.Object))
		}
		b.add(t, fmt.Sprintf("deleted %T %s is back", object.Object, object.GetName()), "ms", "1000", milliseconds(took)...)
	}
}

// repair deletes an object, and returns how long it takes until another one has its name.
func repair(t *testing.T, cluster *realcluster.Cluster, object client.Object) time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	key := client.ObjectKeyFromObject(object)
	if err := cluster.Client.Get(ctx, key, object); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cluster.Client.Delete(ctx, object); err != nil {
		t.Fatal(err)
	}
	for {
		found, _ := object.DeepCopyObject().(client.Object)
		err := cluster.Client.Get(ctx, key, found)
		if err == nil && found.GetDeletionTimestamp() == nil && found.GetUID() != object.GetUID() {
			return time.Since(began)
		}
		if client.IgnoreNotFound(err) != nil {
			t.Fatalf("wait for %s: %v", key, err)
		}
		wait(t, 5*time.Millisecond)
	}
}

// measureFleet lets a fleet join, and measures the pods of the hub while it does and afterwards.
func (b *podBench) measureFleet(t *testing.T) {
	simulated := newFleet(t, b.hub.Config, b.token(t), *podFleet)
	seen := watchAvailability(t, b.hub.Config)
	before := podUsage(t, b.hub)
	began := time.Now()
	stop := samplePods(t, b.hub)
	simulated.Start()
	took := latest(seen.await(t, simulated.Names(), metav1.ConditionTrue, joinTimeout)).Sub(began)
	samples, after := stop(), podUsage(t, b.hub)
	b.add(t, fmt.Sprintf("%d clusters: start to all Available", *podFleet), "s", "", took.Seconds())
	for _, name := range slices.Sorted(maps.Keys(after)) {
		b.add(t, fmt.Sprintf("%d clusters: CPU of %s to join, each", *podFleet, name), "ms", "",
			float64((after[name].cpu-before[name].cpu).Milliseconds())/float64(*podFleet))
		b.add(t, fmt.Sprintf("%d clusters: CPU of %s while they join, of a core", *podFleet, name), "%", "",
			100*(after[name].cpu-before[name].cpu).Seconds()/took.Seconds())
	}
	b.addMemory(t, append(samples, after))
	b.measurePods(t, fmt.Sprintf("%d clusters", *podFleet))
}

// samplePeriod is how often a kubelet measures its pods.
const samplePeriod = 10 * time.Second

// samplePods asks for what pods take until it is stopped, and returns all answers.
func samplePods(t *testing.T, cluster *realcluster.Cluster) (stop func() []map[string]usage) {
	ctx, cancel := context.WithCancel(t.Context())
	var samples []map[string]usage
	var failure error
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(samplePeriod)
		defer tick.Stop()
		for failure == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			pods, err := readPods(ctx, cluster)
			if ctx.Err() != nil {
				return
			}
			samples, failure = append(samples, pods), err
		}
	}()
	return func() []map[string]usage {
		cancel()
		<-done
		if failure != nil {
			t.Fatal(failure)
		}
		return samples
	}
}

// addMemory takes in what the pods of the hub had of memory while clusters joined, as often as they were asked. A pod that was replaced
// meanwhile has fewer values.
func (b *podBench) addMemory(t *testing.T, samples []map[string]usage) {
	working, anonymous := map[string][]float64{}, map[string][]float64{}
	for _, pods := range samples {
		for name, pod := range pods {
			working[name], anonymous[name] = append(working[name], pod.rss), append(anonymous[name], pod.anonymous)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(working)) {
		b.add(t, fmt.Sprintf("%d clusters: memory of %s while they join", *podFleet, name), "MB", "", working[name]...)
		b.add(t, fmt.Sprintf("%d clusters: anonymous memory of %s while they join", *podFleet, name), "MB", "", anonymous[name]...)
	}
}

// measurePods measures what each pod takes when nothing happens but heartbeats.
func (b *podBench) measurePods(t *testing.T, state string) {
	wait(t, quiet)
	before := [2]map[string]usage{podUsage(t, b.hub), podUsage(t, b.managed)}
	began := time.Now()
	wait(t, steadyPeriod)
	period := time.Since(began)
	for i, cluster := range []*realcluster.Cluster{b.hub, b.managed} {
		target := ""
		if state == "idle" {
			target = [2]string{hubPodTarget, agentPodTarget}[i]
		}
		pods := podUsage(t, cluster)
		for _, name := range slices.Sorted(maps.Keys(pods)) {
			pod := pods[name]
			b.add(t, state+": memory of "+name, "MB", target, pod.rss)
			b.add(t, state+": anonymous memory of "+name, "MB", "", pod.anonymous)
			b.add(t, state+": CPU of "+name+", of a core", "%", "", 100*(pod.cpu-before[i][name].cpu).Seconds()/period.Seconds())
		}
	}
}

func podUsage(t *testing.T, cluster *realcluster.Cluster) map[string]usage {
	pods, err := readPods(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

// readPods is what the pods of Capstan take on the node of a cluster, by the names of their Deployments: the memory of the largest pod, as
// the working set, which is what the limit of a container is held against, and the CPU of all.
func readPods(ctx context.Context, cluster *realcluster.Cluster) (map[string]usage, error) {
	body, err := cluster.Clientset.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", cluster.Name, "proxy/stats/summary").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	summary := struct {
		Pods []struct {
			PodRef struct{ Name, Namespace string }
			CPU    struct{ UsageCoreNanoSeconds int64 }
			Memory struct{ WorkingSetBytes, RSSBytes float64 }
		}
	}{}
	if err := json.Unmarshal(body, &summary); err != nil {
		return nil, err
	}
	const mb = 1 << 20
	pods := map[string]usage{}
	for _, pod := range summary.Pods {
		if !strings.HasPrefix(pod.PodRef.Namespace, "open-cluster-management") {
			continue
		}
		name := pod.PodRef.Name
		for range 2 { // the hashes of the ReplicaSet and of the pod
			name = name[:strings.LastIndexByte(name, '-')]
		}
		sum := pods[name]
		sum.rss = max(sum.rss, pod.Memory.WorkingSetBytes/mb)
		sum.anonymous = max(sum.anonymous, pod.Memory.RSSBytes/mb)
		sum.cpu += time.Duration(pod.CPU.UsageCoreNanoSeconds)
		pods[name] = sum
	}
	return pods, nil
}
