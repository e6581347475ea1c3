package walkthrough

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// walkedElsewhere are the examples of TestAddOn, and those for Argo CD, which clusters here do not have: test/integration/works.
var walkedElsewhere = []string{"argocd", "helloworld", "helloworld-template"}

// Each example of the documents does on a hub in a cluster, with real pods, what it says, and leaves nothing when it is deleted.
//
// AM-30, AM-32, AM-37, MR-01, RU-01, WK-01
func TestExamples(t *testing.T) {
	slow(t)
	t.Parallel()
	clusters := start(t, "hub", "cluster1")
	hub, managed := clusters[0], clusters[1]
	hub.importImages(t, "capstan-hub")
	managed.importImages(t, "capstan-agent", "resource-usage-collect-addon")
	managed.ImportTestImage(t, "docker.io/library/busybox:1.37")
	managed.ImportTestImage(t, "mirror.example.com/library/busybox:1.37")
	managed.ImportTestImage(t, "docker.io/library/nginx:1.29", "testpod", "serve", ":80")
	managed.join(t, hub.initialize(t), "cluster1", "--wait")
	hub.accept(t, "cluster1")
	before := managed.Inventory(t)
	examples := map[string]func(t *testing.T){
		"manifestwork-hello.yaml": func(t *testing.T) {
			hub.deploysWork(t, "manifestwork-hello.yaml", "mw-01", func(*workv1.ManifestWork) error { return nil })
		},
		"manifestwork-nginx.yaml": func(t *testing.T) {
			hub.deploysWork(t, "manifestwork-nginx.yaml", "nginx", func(*workv1.ManifestWork) error {
				return managed.availableReplicas(t.Context(), "default", "nginx", 3)
			})
		},
		"manifestwork-feedback.yaml": func(t *testing.T) {
			hub.deploysWork(t, "manifestwork-feedback.yaml", "feedback", hasFeedback)
		},
		"manifestworkreplicaset-web.yaml": func(t *testing.T) { hub.deploysSet(t, managed) },
		"resource-usage-collect":          func(t *testing.T) { hub.scores(t, managed) },
		"addon-proxy-settings":            func(t *testing.T) { hub.configuresProxy(t, managed) },
	}
	wantAllExamples(t, slices.Collect(maps.Keys(examples)))
	for name, deploys := range examples {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // they are of the same clusters
			deploys(t)
			managed.AwaitInventory(t, before)
		})
	}
}

// wantAllExamples fails the test unless the examples are all that no other test walks.
func wantAllExamples(t *testing.T, names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("..", "..", "deploy", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		isExample := entry.IsDir() || filepath.Ext(entry.Name()) == ".yaml"
		if isExample && !slices.Contains(names, entry.Name()) && !slices.Contains(walkedElsewhere, entry.Name()) {
			t.Errorf("no test deploys the example %s", entry.Name())
		}
	}
}

// deploysWork gives cluster1 a work, waits until it is applied and is as it should be, and deletes it.
func (c cluster) deploysWork(t *testing.T, file, name string, check func(*workv1.ManifestWork) error) {
	t.Helper()
	manifest := example(t, file)
	c.Apply(t, manifest)
	c.Eventually(t, func(ctx context.Context) error {
		work := &workv1.ManifestWork{}
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: "cluster1", Name: name}, work); err != nil {
			return err
		}
		if err := haveConditions(work.Status.Conditions, fleet.ConditionApplied+"=True", fleet.ConditionAvailable+"=True"); err != nil {
			return err
		}
		return check(work)
	})
	c.Delete(t, manifest)
}

// hasFeedback is an error if the rules of the example have not made their conditions yet, of its Deployment and of its Job.
func hasFeedback(work *workv1.ManifestWork) error {
	manifests := work.Status.ResourceStatus.Manifests
	if len(manifests) != 2 {
		return fmt.Errorf("the status has %d manifests", len(manifests))
	}
	if len(manifests[0].StatusFeedbacks.Values) == 0 {
		return fmt.Errorf("there are no values of %s", manifests[0].ResourceMeta.Name)
	}
	if err := haveConditions(manifests[0].Conditions, "Serving=True:2 replicas serve"); err != nil {
		return err
	}
	return haveConditions(manifests[1].Conditions, "Complete=True")
}

// availableReplicas is an error unless a Deployment has so many replicas that are available.
func (c cluster) availableReplicas(ctx context.Context, namespace, name string, replicas int32) error {
	deployment := &appsv1.Deployment{}
	if err := c.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, deployment); err != nil {
		return err
	}
	if deployment.Status.AvailableReplicas != replicas {
		return fmt.Errorf("deployment %s/%s has %d available replicas, not %d", namespace, name, deployment.Status.AvailableReplicas, replicas)
	}
	return nil
}

// deploysSet gives the clusters of a placement a ConfigMap that differs for each.
func (c cluster) deploysSet(t *testing.T, managed cluster) {
	t.Helper()
	everywhere := strings.ReplaceAll(placementAll, "name: all", "name: everywhere")
	set := example(t, "manifestworkreplicaset-web.yaml")
	c.Apply(t, everywhere)
	c.Apply(t, set)
	managed.Eventually(t, func(ctx context.Context) error {
		web := &corev1.ConfigMap{}
		if err := managed.Client.Get(ctx, types.NamespacedName{Namespace: "default", Name: "web"}, web); err != nil {
			return err
		}
		if web.Data["greeting"] != "hello" || web.Data["cluster"] != "cluster1" {
			return fmt.Errorf("the ConfigMap has %v", web.Data)
		}
		return nil
	})
	c.Delete(t, set)
	c.Delete(t, everywhere)
}

// scores deploys the add-on that scores clusters, and has a placement use the scores.
func (c cluster) scores(t *testing.T, managed cluster) {
	t.Helper()
	const name = "resource-usage-collect"
	files := []string{"hub.yaml", "placement.yaml", "addondeploymentconfig.yaml", "addontemplate.yaml", "clustermanagementaddon.yaml",
		"most-cpu.yaml"}
	for _, file := range files {
		c.Apply(t, example(t, name, file))
	}
	managed.AwaitAvailable(t, fleet.NamespaceAgentAddOn, "resource-usage-collect-agent")
	c.awaitAddOn(t, "cluster1", name)
	c.Eventually(t, func(ctx context.Context) error {
		score := &clusterv1alpha1.AddOnPlacementScore{}
		return c.Client.Get(ctx, types.NamespacedName{Namespace: "cluster1", Name: "resource-usage-score"}, score)
	})
	c.awaitDecision(t, "placement1", "cluster1")

	c.Delete(t, example(t, name, "clustermanagementaddon.yaml"))
	c.AwaitGone(t, &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name}})
	for _, file := range slices.Backward(files) {
		c.Delete(t, example(t, name, file))
	}
}

// configuresProxy deploys the add-on without code with the configuration of one cluster.
func (c cluster) configuresProxy(t *testing.T, managed cluster) {
	t.Helper()
	const configured = "addon-proxy-settings"
	files := []string{"hub.yaml", "addondeploymentconfig.yaml", "addontemplate.yaml", "clustermanagementaddon.yaml", "placement.yaml"}
	for _, file := range files {
		c.Apply(t, example(t, templated, file))
	}
	settings, addOn := example(t, configured, "addondeploymentconfig.yaml"), example(t, configured, "managedclusteraddon.yaml")
	cluster1 := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}
	c.patch(t, cluster1, `{"metadata": {"labels": {"`+templated+`": "yes"}}}`)
	c.Apply(t, settings)
	c.Apply(t, addOn)
	managed.awaitGreeting(t, "Hello through a proxy from cluster1")
	managed.AwaitAvailable(t, templated, "helloworld-agent")
	c.awaitAddOn(t, "cluster1", templated)
	managed.Eventually(t, func(context.Context) error { // the Deployment is changed a moment after the greeting
		for _, pod := range managed.Pods(t, templated, nil) {
			container := &pod.Spec.Containers[0]
			if container.Image != "mirror.example.com/library/busybox:1.37" {
				return fmt.Errorf("the agent has the image %s", container.Image)
			}
			proxy := corev1.EnvVar{Name: "HTTPS_PROXY", Value: "https://10.0.109.153:3129"}
			if !slices.Contains(container.Env, proxy) {
				return fmt.Errorf("the agent has the environment %v, without %v", container.Env, proxy)
			}
		}
		return nil
	})

	c.patch(t, cluster1, `{"metadata": {"labels": {"`+templated+`": null}}}`)
	c.Delete(t, addOn)
	c.Delete(t, settings)
	for _, file := range slices.Backward(files) {
		c.Delete(t, example(t, templated, file))
	}
}
