package realcluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eventuallyTimeout is how long Eventually waits: far longer than anything takes, for a machine that is busy with other tests. It is longer
// than env.WaitTimeout: what is waited for are servers that start in pods, one after the other, and a container that has failed meanwhile
// is started again after 10, 20 and 40 seconds.
const eventuallyTimeout = 3 * time.Minute

// Eventually waits until check returns no error, and fails the test with the last one if it never does, or the cluster ends. The pods,
// events and logs of the cluster then come with the end of the test.
func (c *Cluster) Eventually(t testing.TB, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventuallyTimeout)
	defer cancel()
	if err := c.poll(ctx, check); err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
}

// AwaitAvailable waits until all replicas of a Deployment are available, and none of an earlier revision is left.
func (c *Cluster) AwaitAvailable(t testing.TB, namespace, deployment string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error { return c.available(ctx, namespace, deployment) })
}

// AwaitPod waits until a pod is ready.
func (c *Cluster) AwaitPod(t testing.TB, namespace, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	c.Eventually(t, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod); err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("pod %s/%s is not ready: %s", namespace, name, describePod(pod))
	})
	return pod
}

// AwaitPhase waits until a pod has a phase, such as corev1.PodSucceeded.
func (c *Cluster) AwaitPhase(t testing.TB, namespace, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	c.Eventually(t, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod); err != nil {
			return err
		}
		if pod.Status.Phase != phase {
			return fmt.Errorf("pod %s/%s is not %s: %s", namespace, name, phase, describePod(pod))
		}
		return nil
	})
	return pod
}

// Pods are those with the labels that are not being deleted.
func (c *Cluster) Pods(t testing.TB, namespace string, labels map[string]string) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := c.Client.List(t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
	var kept []corev1.Pod
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			kept = append(kept, pod)
		}
	}
	return kept
}
