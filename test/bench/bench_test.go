//go:build bench

package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

var out = flag.String("out", "bench.json", "file for the results")

// How often each thing is measured.
const (
	starts     = 5
	joins      = 10
	sequence   = 200
	burst      = 200
	bursts     = 3
	deletions  = 50
	commands   = 20
	idlePeriod = time.Minute
)

// TestBench measures everything, in parts that can also run alone: -run TestBench/works.
func TestBench(t *testing.T) {
	r := newReport()
	hub, err := env.NewHub(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Stop() })
	t.Run("start", func(t *testing.T) { measureHubStart(t, r) })
	startToReady(t, hub)
	managed := env.StartSandbox(t)
	t.Run("join", func(t *testing.T) { measureJoin(t, r, hub, managed) })
	agent := env.Join(t, hub, managed, "cluster1")
	t.Run("idle", func(t *testing.T) { measureIdle(t, r, hub, agent) })
	t.Run("works", func(t *testing.T) { measureWorks(t, r, hub) })
	t.Run("deletion", func(t *testing.T) { measureDeletion(t, r, hub) })
	t.Run("drift", func(t *testing.T) { measureDrift(t, r, hub, managed) })
	t.Run("feedback", func(t *testing.T) { measureFeedback(t, r, hub, managed) })
	t.Run("manifests", func(t *testing.T) { measureIdleManifests(t, r, hub) })
	t.Run("memory", func(t *testing.T) { measureMemory(t, r, hub) })
	t.Run("commands", func(t *testing.T) { measureCommands(t, r, hub) })
	if err := r.print(os.Stdout); err != nil {
		t.Fatal(err)
	}
	if err := r.write(*out); err != nil {
		t.Fatal(err)
	}
}

// measureHubStart times a hub from its start to ready, on fresh data and again.
func measureHubStart(t *testing.T, r *report) {
	var fresh, again []time.Duration
	for range starts {
		hub, err := env.NewHub(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		fresh = append(fresh, startToReady(t, hub))
		stop(t, hub)
		again = append(again, startToReady(t, hub))
		stop(t, hub)
	}
	r.add("hub start to ready, fresh data", "ms", "1200", milliseconds(fresh)...)
	r.add("hub start to ready, restart", "ms", "800", milliseconds(again)...)
}

func startToReady(t *testing.T, s *env.Server) time.Duration {
	begin := time.Now()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}

func stop(t *testing.T, s *env.Server) {
	if err := s.Stop(); err != nil {
		t.Fatalf("the hub did not stop well: %v", err)
	}
}

// measureJoin times an agent from its start until its cluster is joined and available, on a hub where an administrator accepts at
// once.
func measureJoin(t *testing.T, r *report, hub, managed *env.Server) {
	var took []time.Duration
	for i := range joins {
		name := fmt.Sprintf("join-%d", i)
		agent := env.NewAgent(t, hub, managed, name, "")
		available := watchFor(t, hub.Client(t), &clusterv1.ManagedClusterList{}, name, isAvailable)
		accepted := acceptAtOnce(t, hub.Client(t), name)
		begin := time.Now()
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		<-accepted
		took = append(took, (<-available).Sub(begin))
		if err := agent.Stop(); err != nil {
			t.Fatalf("the agent did not stop well: %v", err)
		}
	}
	r.add("agent start to joined and available", "ms", "400", milliseconds(took)...)
}

// measureIdle looks at what a hub and an agent need when nothing happens.
func measureIdle(t *testing.T, r *report, hub *env.Server, agent *env.Agent) {
	hubBefore, agentBefore := usageOf(t, hub.Pid()), usageOf(t, agent.Pid())
	wait(t, idlePeriod)
	hubAfter, agentAfter := usageOf(t, hub.Pid()), usageOf(t, agent.Pid())
	r.add("hub idle: resident memory", "MB", "200", hubAfter.rss)
	r.add("hub idle: anonymous memory", "MB", "100", hubAfter.anonymous)
	r.add("hub idle: CPU per minute", "s", "0.4", perMinute(hubAfter.cpu-hubBefore.cpu))
	r.add("agent idle: resident memory", "MB", "35", agentAfter.rss)
	r.add("agent idle: anonymous memory", "MB", "12", agentAfter.anonymous)
	r.add("agent idle: CPU per minute", "s", "", perMinute(agentAfter.cpu-agentBefore.cpu))
}

func perMinute(cpu time.Duration) float64 {
	return cpu.Seconds() * float64(time.Minute) / float64(idlePeriod)
}

// measureWorks times ManifestWorks of one ConfigMap from their creation until the hub says Applied.
func measureWorks(t *testing.T, r *report, hub *env.Server) {
	c := hub.Client(t)
	applied := watchWorks(t, hub, "cluster1")
	var one []time.Duration
	for i := range sequence {
		begin := time.Now()
		create(t, c, configMapWork("cluster1", fmt.Sprintf("seq-%d", i)))
		one = append(one, applied.wait(t, fmt.Sprintf("seq-%d", i)).Sub(begin))
	}
	r.add("work created to Applied, one after the other", "ms", "15, p90 30", milliseconds(one)...)
	var all []time.Duration
	for b := range bursts {
		all = append(all, applied.burst(t, c, b))
	}
	r.add(fmt.Sprintf("%d works created at once, all Applied", burst), "ms", "1000", milliseconds(all)...)
}

// measureDrift times how long a deleted object stays away. Each is deleted once: what is deleted again and again is made again with delays.
func measureDrift(t *testing.T, r *report, hub, managed *env.Server) {
	nameOf := func(i int) string { return fmt.Sprintf("drift-%d", i) }
	work := configMapWork("cluster1", "drift")
	work.Spec.Workload.Manifests = nil
	for i := range deletions {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, configMapWork("", nameOf(i)).Spec.Workload.Manifests...)
	}
	c := hub.Client(t)
	create(t, c, work)
	watchWorks(t, hub, "cluster1").wait(t, "drift")
	c = managed.Client(t)
	var took []time.Duration
	for i := range deletions {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: nameOf(i)}}
		// The first event comes before the deletion, so that no start of a watch is measured.
		created := creations(t, c, &corev1.ConfigMapList{}, object.Name)
		<-created
		begin := time.Now()
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		took = append(took, (<-created).Sub(begin))
	}
	r.add("deleted object is back", "ms", "200", milliseconds(took)...)
}

// measureCommands times the command line, from its start to its end.
func measureCommands(t *testing.T, r *report, hub *env.Server) {
	capstan := filepath.Join("..", "..", "bin", "capstan")
	for _, args := range [][]string{{"version"}, {"get", "clusters", "--kubeconfig", hub.Kubeconfig}} {
		var took []time.Duration
		for range commands {
			begin := time.Now()
			if output, err := exec.CommandContext(t.Context(), capstan, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, output)
			}
			took = append(took, time.Since(begin))
		}
		target := map[string]string{"version": "40", "get": "80"}[args[0]]
		r.add("capstan "+args[0]+map[bool]string{true: " clusters"}[args[0] == "get"], "ms", target, milliseconds(took)...)
	}
}

func isAvailable(o client.Object) bool {
	mc, ok := o.(*clusterv1.ManagedCluster)
	return ok && conditionTrue(mc.Status.Conditions, fleet.ConditionJoined) &&
		conditionTrue(mc.Status.Conditions, fleet.ConditionClusterAvailable)
}

// wait lets time pass, unless the test ends.
func wait(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}
