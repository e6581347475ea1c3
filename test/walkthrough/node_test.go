package walkthrough

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// cordon keeps pods from being scheduled to the node, or lets them again.
func (c cluster) cordon(t *testing.T, cordoned bool) {
	t.Helper()
	node := &corev1.Node{}
	if err := c.Client.Get(t.Context(), types.NamespacedName{Name: c.Name}, node); err != nil {
		t.Fatal(err)
	}
	before := node.DeepCopy()
	node.Spec.Unschedulable = cordoned
	if err := c.Client.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
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
