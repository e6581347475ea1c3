package walkthrough

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// registry is that of the images of this commit.
const registry = "ghcr.io/capstan-io/"

// killPods kills all pods of namespaces at once, without giving them time to end.
func (c cluster) killPods(t *testing.T, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		for _, pod := range c.Pods(t, namespace, nil) {
			if err := c.Client.Delete(t.Context(), &pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
	}
}

// maxRestarts is how often a container may be restarted on a node that is busy with starting all pods at once.
const maxRestarts = 3

// comesBack waits until all pods of the Deployments of namespaces are ready again, and fails the test if a container had to be restarted
// often for that, as liveness probes that do not wait for a busy node have it: pods that replace others start with no restarts.
func (c cluster) comesBack(t *testing.T, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		c.Eventually(t, func(ctx context.Context) error { return c.hasAllPods(ctx, namespace) })
		for _, pod := range c.Pods(t, namespace, nil) {
			for _, container := range pod.Status.ContainerStatuses {
				if container.RestartCount > maxRestarts {
					t.Errorf("container %s of pod %s/%s was restarted %d times, more than %d", container.Name, namespace, pod.Name,
						container.RestartCount, maxRestarts)
				}
			}
		}
	}
}

// hasAllPods is an error unless a namespace has as many pods that are ready as its Deployments want.
func (c cluster) hasAllPods(ctx context.Context, namespace string) error {
	deployments, pods := &appsv1.DeploymentList{}, &corev1.PodList{}
	if err := errors.Join(c.Client.List(ctx, deployments, client.InNamespace(namespace)),
		c.Client.List(ctx, pods, client.InNamespace(namespace))); err != nil {
		return err
	}
	wanted, ready := 0, 0
	for i := range deployments.Items {
		wanted += int(ptr.Deref(deployments.Items[i].Spec.Replicas, 1))
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil && isReady(&pods.Items[i]) {
			ready++
		}
	}
	if wanted == 0 || ready != wanted {
		return fmt.Errorf("%d pods of namespace %s are ready, and its Deployments want %d", ready, namespace, wanted)
	}
	return nil
}

// cordon keeps pods from being scheduled to a node, or lets them again.
func (c cluster) cordon(t *testing.T, name string, cordoned bool) {
	t.Helper()
	node := &corev1.Node{}
	if err := c.Client.Get(t.Context(), types.NamespacedName{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	before := node.DeepCopy()
	node.Spec.Unschedulable = cordoned
	if err := c.Client.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// drain has all pods leave a node, as "kubectl drain --force --delete-emptydir-data" does.
func (c cluster) drain(t *testing.T, name string) {
	t.Helper()
	c.cordon(t, name, true)
	c.Eventually(t, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := c.Client.List(ctx, pods); err != nil {
			return err
		}
		var left error
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != name {
				continue
			}
			left = errors.Join(left, fmt.Errorf("pod %s/%s is on node %s", pod.Namespace, pod.Name, name))
			if pod.DeletionTimestamp == nil {
				left = errors.Join(left, client.IgnoreNotFound(c.evict(ctx, &pod)))
			}
		}
		return left
	})
}

// evict asks that a pod leaves its node, as "kubectl drain" does. The error says which budget does not let it.
func (c cluster) evict(ctx context.Context, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return c.Clientset.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)
}

// tagImage gives an image of the node another tag.
func (c cluster) tagImage(t *testing.T, name, other string) {
	t.Helper()
	image := registry + name + ":"
	if _, err := c.NodeExec(t.Context(), "ctr", "--namespace", "k8s.io", "images", "tag", image+tag, image+other); err != nil {
		t.Fatal(err)
	}
}

// runsImages fails the test unless all pods of the namespaces have images with the tag.
func (c cluster) runsImages(t *testing.T, tag string, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		pods := c.Pods(t, namespace, nil)
		if len(pods) == 0 {
			t.Errorf("there are no pods in namespace %s", namespace)
		}
		for _, pod := range pods {
			for _, container := range pod.Spec.Containers {
				if !strings.HasSuffix(container.Image, ":"+tag) {
					t.Errorf("pod %s/%s runs the image %s", pod.Namespace, pod.Name, container.Image)
				}
			}
		}
	}
}
