package nodesim

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// simulate runs a simulator on a fake API with the objects given. What an API server does by itself, such as removing
// a pod that is deleted without grace, is tested on a real one in package sandbox.
func simulate(t *testing.T, pods ...*corev1.Pod) (kubernetes.Interface, *clocktesting.FakeClock) {
	t.Helper()
	client, clock := fake.NewClientset(), clocktesting.NewFakeClock(t0.Time)
	for _, pod := range pods {
		if _, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	s, err := New(Options{
		Nodes: 1, Version: "v1.2.3", Client: client, Clock: clock,
		PodInformer: factory.Core().V1().Pods(), NodeInformer: factory.Core().V1().Nodes(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	factory.Start(ctx.Done())
	return client, clock
}

func eventually(t *testing.T, what string, check func(ctx context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return check(ctx), nil
	})
	if err != nil {
		t.Fatalf("did not happen: %s", what)
	}
}

// The nodes register with what they simulate, and hold a lease.
func TestRegisters(t *testing.T) {
	t.Parallel()
	client, _ := simulate(t)
	eventually(t, "node-1 is Ready, says that it executes nothing, and has a lease", func(ctx context.Context) bool {
		node, err := client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
		if err != nil || node.Status.NodeInfo.KubeletVersion != "v1.2.3" || node.Status.Allocatable.Pods().Value() == 0 {
			return false
		}
		_, err = client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "node-1", metav1.GetOptions{})
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "do not execute") {
				return err == nil
			}
		}
		return false
	})
}

// A node reports its status again after the heartbeat period.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	client, clock := simulate(t)
	beat := func(since time.Time) func(context.Context) bool {
		return func(ctx context.Context) bool {
			clock.Step(time.Second)
			node, err := client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
			return err == nil && node.Status.Conditions[0].LastHeartbeatTime.After(since)
		}
	}
	eventually(t, "first report", beat(t0.Add(-time.Second)))
	eventually(t, "second report", beat(t0.Add(heartbeat)))
}

// A pod with a preStop sleep is removed after the sleep and not before.
func TestPreStopSleep(t *testing.T) {
	t.Parallel()
	const grace = 30
	pod := run(newPod(func(p *corev1.Pod) {
		p.Finalizers = []string{"example.com/keep"}
		p.DeletionTimestamp = ptr.To(metav1.NewTime(t0.Add(grace * time.Second)))
		p.DeletionGracePeriodSeconds = ptr.To[int64](grace)
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 10}}}
	}), t0)
	client, clock := simulate(t, pod)
	phase := func(ctx context.Context) corev1.PodPhase {
		got, err := client.CoreV1().Pods("ns").Get(ctx, "pod", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return corev1.PodFailed // stopped, then removed
		}
		return got.Status.Phase
	}
	// The queue's waiter, the lease and the heartbeat each wait on the clock.
	eventually(t, "the simulator waits", func(context.Context) bool { return clock.Waiters() >= 3 })
	if got := phase(t.Context()); got != corev1.PodRunning {
		t.Fatalf("during the sleep: phase %s, want Running", got)
	}
	eventually(t, "the pod stops", func(ctx context.Context) bool {
		clock.Step(time.Second)
		return phase(ctx) == corev1.PodFailed
	})
	if slept := clock.Since(t0.Time); slept < 10*time.Second {
		t.Errorf("stopped after %s, want 10s", slept)
	}
}

// A pod whose node is gone is removed; one on a node of another program is left alone.
func TestOrphans(t *testing.T) {
	t.Parallel()
	on := func(name, node string) *corev1.Pod {
		return newPod(func(p *corev1.Pod) { p.Name, p.UID, p.Spec.NodeName = name, "", node })
	}
	client, _ := simulate(t, on("orphan", "node-9"))
	eventually(t, "the orphan goes", func(ctx context.Context) bool {
		_, err := client.CoreV1().Pods("ns").Get(ctx, "orphan", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "real"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, pod := range []*corev1.Pod{on("foreign", "real"), on("ours", "node-1")} {
		if _, err := client.CoreV1().Pods("ns").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the pod of ours runs", func(ctx context.Context) bool {
		pod, err := client.CoreV1().Pods("ns").Get(ctx, "ours", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	})
	foreign, err := client.CoreV1().Pods("ns").Get(t.Context(), "foreign", metav1.GetOptions{})
	if err != nil || foreign.Status.Phase != "" {
		t.Errorf("the pod of another node: phase %q, error %v; want it untouched", foreign.Status.Phase, err)
	}
}

// A node left from a run with more nodes is removed, one made by a user is not.
func TestRemovesFormerNodes(t *testing.T) {
	t.Parallel()
	client, _ := simulate(t)
	for _, node := range []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "user"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "node-7", Labels: map[string]string{LabelSimulated: "true"}}},
	} {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "node-7 goes", func(ctx context.Context) bool {
		_, err := client.CoreV1().Nodes().Get(ctx, "node-7", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "user", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{0, MaxNodes + 1} {
		if _, err := New(Options{Nodes: nodes}); err == nil || !strings.Contains(err.Error(), "between 1 and 64") {
			t.Errorf("%d nodes: got error %v, want one that says how many there may be", nodes, err)
		}
	}
}
