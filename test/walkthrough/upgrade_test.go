package walkthrough

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// A hub and an agent are upgraded while all of their pods are killed in the middle. The commands succeed all the same, and what the hub has
// for the cluster gets there, where the pod of a work stays.
//
// CA-41
func TestUpgradeWithPodsKilled(t *testing.T) {
	slow(t)
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	hub.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent")
	managed.join(t, hub.initialize(t), "cluster1", "--wait")
	hub.accept(t, "cluster1")
	applied := hub.createWork(t, managed, "cluster1")
	for _, upgraded := range []struct {
		name      string
		in        cluster
		upgrade   func(*testing.T, cluster)
		namespace string // of what the operator runs
	}{
		{"hub", hub, upgradeHub, fleet.NamespaceHub},
		{"agent", managed, upgradeAgent, fleet.NamespaceAgent},
	} {
		passed := t.Run(upgraded.name, func(t *testing.T) { //nolint:paralleltest // the agent is one of the hub
			killed := make(chan error, 1)
			go func() {
				killed <- upgraded.in.killWhileUpgraded(t.Context(), "next", fleet.NamespaceOperators, upgraded.namespace)
			}()
			upgraded.upgrade(t, upgraded.in)
			if err := <-killed; err != nil {
				t.Fatal(err)
			}
			upgraded.in.comesBack(t, fleet.NamespaceOperators, upgraded.namespace)
			hub.awaitHubUp(t)
			managed.awaitAgentUp(t, "klusterlet")
			hub.awaitAvailable(t, "cluster1")
			hub.awaitWorkAllowed(t, "cluster1")
			hub.reaches(t, managed, "cluster1")
			if now := managed.AwaitPod(t, "default", "hello"); now.UID != applied.UID {
				t.Errorf("the pod of the work has been replaced: %s is %s", applied.UID, now.UID)
			}
		})
		if !passed {
			t.FailNow()
		}
	}
}

// awaitWorkAllowed waits until a work for a cluster could be created: the API server reaches the webhook a moment after its pod is ready.
func (c cluster) awaitWorkAllowed(t *testing.T, name string) {
	t.Helper()
	c.Eventually(t, func(ctx context.Context) error {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tried"}}
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
			Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "tried"}}`)}}}
		return c.Client.Create(ctx, work, client.DryRunAll)
	})
}

// killWhileUpgraded kills all pods of the namespaces as soon as the first one has a pod with an image of that tag, then as soon as the next
// one has, and so on.
func (c cluster) killWhileUpgraded(ctx context.Context, tag string, namespaces ...string) error {
	for _, upgraded := range namespaces {
		if err := c.awaitPodOf(ctx, tag, upgraded); err != nil {
			return fmt.Errorf("no pod in namespace %s has an image with the tag %s: %w", upgraded, tag, err)
		}
		for _, namespace := range namespaces {
			err := c.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0))
			if err != nil {
				return fmt.Errorf("kill the pods of namespace %s: %w", namespace, err)
			}
		}
	}
	return nil
}

// awaitPodOf waits until a namespace has a pod with an image of that tag.
func (c cluster) awaitPodOf(ctx context.Context, tag, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return env.Poll(ctx, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := c.Client.List(ctx, pods, client.InNamespace(namespace))
		return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
			return strings.HasSuffix(pod.Spec.Containers[0].Image, ":"+tag)
		}), err
	})
}
