package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var testMaxima = maxima{
	cpu: resource.MustParse("100"), memory: resource.MustParse("1Ti"), gpu: resource.MustParse("20"), tpu: resource.MustParse("20"),
}

func node(name string, cpu, memory, gpu string, mutate ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
			"nvidia.com/gpu": resource.MustParse(gpu),
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	for _, f := range mutate {
		f(&n)
	}
	return n
}

func pod(on string, phase corev1.PodPhase, cpu, memory string) corev1.Pod {
	return corev1.Pod{
		Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
		}}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// RU-02, RU-03, A13: what is left counts, in whole units, and only where a pod could go.
func TestScores(t *testing.T) {
	t.Parallel()
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	notReady := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	for name, c := range map[string]struct {
		nodes []corev1.Node
		pods  []corev1.Pod
		want  map[string]int32
	}{
		"empty cluster": {want: map[string]int32{
			"cpuAvailable": 0, "cpuClusterAvailable": -100, "cpuNodeAvailable": -100, "memAvailable": 0, "memClusterAvailable": -100,
			"memNodeAvailable": -100, "gpuClusterAvailable": -100, "gpuNodeAvailable": -100, "tpuClusterAvailable": -100, "tpuNodeAvailable": -100,
		}},
		"best node and sum": {
			nodes: []corev1.Node{node("a", "30", "256Gi", "4"), node("b", "20", "512Gi", "16")},
			want: map[string]int32{
				"cpuNodeAvailable": -40, "cpuClusterAvailable": 0, "cpuAvailable": 50, "memNodeAvailable": 0, "memClusterAvailable": 50,
				"memAvailable":     75,
				"gpuNodeAvailable": 60, "gpuClusterAvailable": 100,
			},
		},
		"requests count until the pod ends": {
			nodes: []corev1.Node{node("a", "50", "512Gi", "0")},
			pods: []corev1.Pod{
				pod("a", corev1.PodRunning, "20", "256Gi"), pod("a", corev1.PodSucceeded, "20", "256Gi"), pod("a", corev1.PodFailed, "20", "256Gi"),
			},
			want: map[string]int32{"cpuNodeAvailable": -40, "cpuClusterAvailable": -40, "memAvailable": 25},
		},
		"a pod without a node counts for the cluster": {
			nodes: []corev1.Node{node("a", "50", "512Gi", "0")},
			pods:  []corev1.Pod{pod("", corev1.PodPending, "10", "1Gi")},
			want:  map[string]int32{"cpuNodeAvailable": 0, "cpuClusterAvailable": -20},
		},
		"nodes that take no pods": {
			nodes: []corev1.Node{node("a", "50", "1Ti", "20", cordoned), node("b", "50", "1Ti", "20", notReady), node("c", "25", "0", "0")},
			pods:  []corev1.Pod{pod("a", corev1.PodRunning, "50", "0")},
			want:  map[string]int32{"cpuNodeAvailable": -50, "cpuClusterAvailable": -50, "memClusterAvailable": -100},
		},
		"overcommitted and above the most": {
			nodes: []corev1.Node{node("a", "500", "1Gi", "0")},
			pods:  []corev1.Pod{pod("a", corev1.PodRunning, "1", "2Gi")},
			want:  map[string]int32{"cpuNodeAvailable": 100, "cpuAvailable": 100, "memNodeAvailable": -100, "memAvailable": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[string]int32{}
			for _, item := range scores(c.nodes, c.pods, testMaxima) {
				got[item.Name] = item.Value
			}
			for name, want := range c.want {
				if value, there := got[name]; !there || value != want {
					t.Errorf("%s is %d, there: %t, want %d", name, value, there, want)
				}
			}
		})
	}
}

func BenchmarkScores(b *testing.B) {
	var nodes []corev1.Node
	var pods []corev1.Pod
	for i := range 500 {
		n := node(string(rune('a'+i%26))+string(rune('a'+i/26)), "32", "128Gi", "0")
		nodes = append(nodes, n)
		for range 30 {
			pods = append(pods, pod(n.Name, corev1.PodRunning, "100m", "128Mi"))
		}
	}
	for b.Loop() {
		scores(nodes, pods, testMaxima)
	}
}
