//go:build bench

package bench

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/fleetsim"
)

const (
	proxiedRequests = 3000
	proxiedWatches  = 1000
	proxiedObjects  = 64
	proxiedLists    = 16
	proxiedStreams  = 10000
	openedAtATime   = 100
	commandRuns     = 5
	podsEach        = 5
	tunnelPoll      = 100 * time.Millisecond
)

// Targets, in milliseconds.
const (
	addedTarget = "1"    // what the hub adds to a request
	backTarget  = "2000" // a tunnel that was lost is back
)

// What "capstan get pods" of so many clusters has as target, in milliseconds.
var getPodsTargets = map[int]string{100: "1000"}

// TestProxy measures what a request through the hub adds to a direct one, and what tunnels and what is open in them take.
func TestProxy(t *testing.T) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	r := newReport()
	t.Cleanup(func() {
		if err := errors.Join(r.print(os.Stdout), r.write(*out)); err != nil {
			t.Error(err)
		}
	})
	t.Run("requests", func(t *testing.T) { measureProxy(t, r) })
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 2 { // one cluster to deny, and one of which the add-on is disabled
			t.Fatalf("-fleet %s: %q is no size of a fleet; use numbers from 2", *sizes, text)
		}
		t.Run(text, func(t *testing.T) { measureTunnels(t, r, size) })
	}
}

func measureProxy(t *testing.T, r *report) {
	hub, managed := env.StartHub(t, ""), env.StartSandbox(t)
	agent := env.Join(t, hub, managed, "cluster1")
	create(t, hub.Client(t), proxyOn("cluster1"))
	awaitAddOns(t, hub, 1, available)
	create(t, managed.Client(t), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "administrators-of-the-hub"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "cluster:hub:system:masters"}}})
	direct, through := hubConfig(t, managed), through(hubConfig(t, hub), "cluster1")
	for i := range proxiedObjects {
		create(t, managed.Client(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault,
			Name: fmt.Sprintf("big-%d", i), Labels: map[string]string{"size": "big"}}, BinaryData: map[string][]byte{"key": make([]byte, 750<<10)}})
	}
	for _, path := range []string{"/version", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"} {
		took := map[string][]time.Duration{}
		ways := map[string]*http.Client{"direct": clientOf(t, direct), "through the hub": clientOf(t, through)}
		hosts := map[string]string{"direct": direct.Host, "through the hub": through.Host}
		for range proxiedRequests {
			for way, c := range ways {
				begin := time.Now()
				fetch(t, c, hosts[way]+path)
				took[way] = append(took[way], time.Since(begin))
			}
		}
		for _, way := range []string{"direct", "through the hub"} {
			r.add("GET "+path+", "+way, "ms", "", milliseconds(took[way])...)
		}
		r.add("GET "+path+", added by the hub", "ms", addedTarget, milliseconds(added(took["direct"], took["through the hub"]))...)
	}
	for way, config := range map[string]*rest.Config{"direct": direct, "through the hub": through} {
		c, n, begin := clientOf(t, config), int64(0), time.Now()
		for range proxiedLists {
			n += fetch(t, c, config.Host+bigLists)
		}
		r.add(fmt.Sprintf("lists of %d MB, %s", n/proxiedLists>>20, way), "MB/s", "", float64(n)/(1<<20)/time.Since(begin).Seconds())
	}
	measureStream(t, r, hub, managed, agent)
	measureSlowReaders(t, r, hub, agent, through)
	measureWatches(t, r, hub, managed, agent, through)
}

// added is how much longer each request took through the hub than the direct one that was made next to it.
func added(direct, through []time.Duration) (more []time.Duration) {
	for i := range direct {
		more = append(more, through[i]-direct[i])
	}
	return more
}

func measureWatches(t *testing.T, r *report, hub, managed *env.Server, agent *env.Agent, through *rest.Config) {
	wait(t, settled)
	hubBefore, agentBefore := usageOf(t, hub.Pid()), usageOf(t, agent.Pid())
	clientset := kubernetes.NewForConfigOrDie(through)
	var seen errgroup.Group
	created := make(chan time.Time)
	opened := make(chan struct{}, proxiedWatches)
	times := make(chan time.Duration, proxiedWatches)
	for range proxiedWatches {
		seen.Go(func() error {
			watch, err := clientset.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=event"})
			opened <- struct{}{}
			if err != nil {
				return err
			}
			defer watch.Stop()
			begin := <-created
			<-watch.ResultChan()
			times <- time.Since(begin)
			<-created
			return nil
		})
	}
	for range proxiedWatches {
		<-opened
	}
	wait(t, settled)
	hubAfter, agentAfter := usageOf(t, hub.Pid()), usageOf(t, agent.Pid())
	r.add("1,000 watches through one agent: memory of the hub", "MB more", "", hubAfter.rss-hubBefore.rss)
	r.add("1,000 watches through one agent: memory of the agent", "MB more", "", agentAfter.rss-agentBefore.rss)
	begin := time.Now()
	create(t, managed.Client(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "event"}})
	for range proxiedWatches {
		created <- begin
	}
	var all []time.Duration
	for range proxiedWatches {
		all = append(all, <-times)
	}
	close(created)
	if err := seen.Wait(); err != nil {
		t.Fatal(err)
	}
	r.add("event in 1,000 watches through one agent, each", "ms", "", milliseconds(all)...)
}

// measureTunnels enables the add-on on a fleet, restarts the hub, and takes the tunnels from some clusters.
func measureTunnels(t *testing.T, r *report, size int) {
	hub := env.StartHub(t, "", append(fleetsim.HubFlags(), "--profiling")...)
	simulated := newFleet(t, hubConfig(t, hub), newToken(t, hub), size)
	seen := watchAvailability(t, hubConfig(t, hub))
	simulated.Start()
	seen.await(t, simulated.Names(), metav1.ConditionTrue, joinTimeout)
	wait(t, settlePeriod)
	before, self := usageOf(t, hub.Pid()), usageOf(t, os.Getpid())
	c := hub.Client(t)
	begin := time.Now()
	for _, name := range simulated.Names() {
		create(t, c, proxyOn(name))
	}
	awaitAddOns(t, hub, size, available)
	add := func(name, unit, target string, values ...float64) {
		r.add(fmt.Sprintf("%d clusters: %s", size, name), unit, target, values...)
	}
	add("add-on enabled on all, to all connected", "s", "", time.Since(begin).Seconds())
	wait(t, settlePeriod)
	after, selfAfter := usageOf(t, hub.Pid()), usageOf(t, os.Getpid())
	add("memory of the hub for a tunnel and its add-on", "kB", "", (after.rss-before.rss)*1024/float64(size))
	add("memory of the agents for a tunnel", "kB", "", (selfAfter.rss-self.rss)*1024/float64(size))
	steady := measurePeriod(t, hub, steadyPeriod)
	add("hub CPU with idle tunnels, of a core", "%", "", steady.cpu)
	measureManyStreams(t, add, hub, simulated.Names())
	measureManyClusters(t, add, hub, simulated)

	hub.Kill()
	<-hub.Done()
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	if err := hub.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	add("hub killed and ready again, to tunnel back, each", "ms", backTarget, awaitTunnels(t, hub, size)...)
	measureRevocations(t, add, hub, simulated.Names())
}

// awaitTunnels returns after how many milliseconds each tunnel is there. It counts them on the hub: as many requests through tunnels as it
// takes to find each of them would keep the hub from taking the others.
func awaitTunnels(t *testing.T, hub *env.Server, size int) (times []float64) {
	begin := time.Now()
	for len(times) < size {
		now, after := int(metricsOf(t, hub).tunnels), float64(time.Since(begin).Milliseconds())
		for len(times) < now {
			times = append(times, after)
		}
		wait(t, tunnelPoll)
	}
	return times
}

// measureManyStreams opens watches in all tunnels, and leaves them open for a while.
func measureManyStreams(t *testing.T, add func(name, unit, target string, values ...float64), hub *env.Server, clusters []string) {
	config := hubConfig(t, hub)
	requests := clientOf(t, config)
	before, self := usageOf(t, hub.Pid()), usageOf(t, os.Getpid())
	var opened errgroup.Group
	opened.SetLimit(openedAtATime)
	bodies := make([]io.Closer, proxiedStreams)
	begin := time.Now()
	for i := range bodies {
		opened.Go(func() error {
			body, err := openWatch(requests, config, clusters[i%len(clusters)])
			bodies[i] = body
			return err
		})
	}
	if err := opened.Wait(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	wait(t, settled)
	after, selfAfter := usageOf(t, hub.Pid()), usageOf(t, os.Getpid())
	name := fmt.Sprintf("%d streams: ", proxiedStreams)
	add(name+"all open", "s", "", took.Seconds())
	add(name+"memory of the hub for a stream", "kB", "", (after.rss-before.rss)*1024/proxiedStreams)
	add(name+"memory of agents and clients for a stream", "kB", "", (selfAfter.rss-self.rss)*1024/proxiedStreams)
	for _, body := range bodies {
		body.Close()
	}
	requests.CloseIdleConnections()
	wait(t, settled) // hub and agents are busy with the end of so many, which is no part of what is measured next
}

// openWatch opens a watch in the tunnel of a cluster. It lasts until its body is closed, or the tunnel ends.
func openWatch(c *http.Client, hub *rest.Config, cluster string) (io.ReadCloser, error) {
	response, err := c.Get(through(hub, cluster).Host + "/api/v1/namespaces?watch=true")
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(response.Body)
		return nil, errors.Join(fmt.Errorf("watch namespaces of %s: %s: %s", cluster, response.Status, answer), err, response.Body.Close())
	}
	return response.Body, nil
}

// measureManyClusters has the command line read from all clusters. For the first run, the hub also opens a stream to each agent, which it
// keeps for the others; the command line itself keeps nothing.
func measureManyClusters(t *testing.T, add func(name, unit, target string, values ...float64), hub *env.Server,
	simulated fleetsim.Fleet) {
	createPods(t, simulated)
	var took []time.Duration
	for range commandRuns {
		begin := time.Now()
		hub.Capstan(t, "", "get", "pods", "--all-clusters").Succeeds(t, "web-0")
		took = append(took, time.Since(begin))
	}
	add("capstan get pods --all-clusters", "ms", getPodsTargets[len(simulated)], milliseconds(took)...)
}

// createPods creates pods on the clusters themselves, which serve no tables of them: the command line gets all fields.
func createPods(t *testing.T, simulated fleetsim.Fleet) {
	t.Helper()
	options := client.Options{Scheme: env.Scheme()}
	for _, member := range simulated {
		c, err := client.New(member.Cluster.Config(), options)
		if err != nil {
			t.Fatal(err)
		}
		for i := range podsEach {
			create(t, c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("web-%d", i)}})
		}
	}
}

func proxyOn(cluster string) client.Object {
	return &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.AddOnClusterProxy}}
}

// through is the way to a cluster through the hub.
func through(hub *rest.Config, cluster string) *rest.Config {
	config := rest.CopyConfig(hub)
	config.Host += "/apis/cluster.open-cluster-management.io/v1/managedclusters/" + cluster + "/proxy"
	config.QPS = -1
	return config
}

func clientOf(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func fetch(t *testing.T, c *http.Client, url string) int64 {
	t.Helper()
	response, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %v", url, response.Status, err)
	}
	return n
}
