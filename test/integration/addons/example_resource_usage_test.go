package addons

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// scored is the example resource-usage-collect.
const scored = "resource-usage-collect"

// The example resource-usage-collect: its agents score two clusters, by which a placement chooses the one with most CPU left, and
// the other one when that is used. RU-01 RU-02 RU-03 RU-04.
func TestExampleResourceUsage(t *testing.T) {
	t.Parallel()
	// The add-on is installed on all clusters of a hub, so the hub is the test's own; so are the clusters, whose pods count.
	site := &scoredSite{hub: env.StartHub(t, ""), clusters: map[string]*env.Server{"usage1": env.StartSandbox(t),
		"usage2": env.StartSandbox(t)}}
	c := site.hub.Client(t)
	for _, file := range []string{"hub.yaml", "placement.yaml", "addondeploymentconfig.yaml", "addontemplate.yaml",
		"clustermanagementaddon.yaml", "most-cpu.yaml"} {
		for _, object := range exampleObjects(t, scored, file) {
			framework.Create(t, c, object)
		}
	}
	for name, cluster := range site.clusters {
		env.Join(t, site.hub, cluster, name)
	}
	site.runAgent(t, "usage1", "usage2")
	site.runAgent(t, "usage2", "usage1")
	// What the agent itself requests is little: it changes no score of a cluster with 32 cores by more than 1.
	site.awaitCPU(t, "usage1", 31)
	site.awaitCPU(t, "usage2", 31)

	site.use(t, "usage1", "6")
	site.awaitCPU(t, "usage1", 25)
	site.awaitChosen(t, "usage2")
	site.use(t, "usage2", "12")
	site.awaitCPU(t, "usage2", 19)
	site.awaitChosen(t, "usage1")
}

type scoredSite struct {
	hub      *env.Server
	clusters map[string]*env.Server
}

// runAgent runs the agent of a cluster as its Deployment says, and makes sure that it may do nothing on the hub but what it needs.
func (s *scoredSite) runAgent(t *testing.T, cluster, other string) {
	t.Helper()
	on := s.clusters[cluster]
	enabled := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: scored}}
	framework.AwaitObject(t, s.hub.Client(t), enabled,
		func(addOn *addonv1beta1.ManagedClusterAddOn) error {
			return framework.HasAddOnCondition(fleet.ConditionAvailable, metav1.ConditionTrue, fleet.ReasonProbeAvailable, "")(addOn)
		})
	secret := framework.AwaitSecret(t, on.Client(t), fleet.NamespaceAgentAddOn, scored+"-hub-kubeconfig", framework.KubeKeys,
		framework.AnySecret)
	deployment := framework.AwaitObject(t, on.Client(t),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAgentAddOn, Name: scored + "-agent"}},
		func(*appsv1.Deployment) error { return nil })
	pod := deployment.Spec.Template.Spec
	if want := []string{
		"--cluster-name=" + cluster, "--hub-kubeconfig=/managed/hub-kubeconfig/kubeconfig", "--max-cpu=100", "--max-memory=1Ti", "--max-gpu=20",
		"--max-tpu=20",
	}; !slices.Equal(pod.Containers[0].Args, want) {
		t.Fatalf("arguments %q, want %q", pod.Containers[0].Args, want)
	}
	args := slices.Delete(slices.Clone(pod.Containers[0].Args), 1, 2) // the folder is one of the pod
	runExampleAgent(t, scored, fleet.NamespaceAgentAddOn, pod.ServiceAccountName, secret, on, args...)

	agent := env.ClientFor(t, framework.ConfigOf(t, secret))
	theirs := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "resource-usage-score"}}
	for verb, err := range map[string]error{
		"create": agent.Create(t.Context(), theirs.DeepCopy()), "get": agent.Get(t.Context(), client.ObjectKeyFromObject(theirs),
			theirs.DeepCopy()),
		"update the status of": agent.Status().Update(t.Context(), theirs.DeepCopy()),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("the agent of %s may %s the scores of %s: %v", cluster, verb, other, err)
		}
	}
}

// use has a pod on a cluster request CPU.
func (s *scoredSite) use(t *testing.T, cluster, cpu string) {
	t.Helper()
	labels := map[string]string{"app": "busy"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "busy"}}
	d.Spec.Replicas, d.Spec.Selector = ptr.To[int32](1), &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "busy", Image: "example.com/busy",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
	}}
	framework.Create(t, s.clusters[cluster].Client(t), d)
}

// awaitCPU waits until the scores of a cluster, of 100 cores, say how many it has left, and are valid for a while.
func (s *scoredSite) awaitCPU(t *testing.T, cluster string, cores int32) {
	t.Helper()
	score := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "resource-usage-score"}}
	framework.AwaitObject(t, s.hub.Client(t), score, func(score *clusterv1alpha1.AddOnPlacementScore) error {
		values := map[string]int32{}
		for _, item := range score.Status.Scores {
			values[item.Name] = item.Value
		}
		if values["cpuAvailable"] != cores || len(values) != 10 {
			return fmt.Errorf("the scores are %v", values)
		}
		if until := score.Status.ValidUntil; until == nil || until.Before(ptr.To(metav1.NewTime(time.Now().Add(time.Minute)))) {
			return fmt.Errorf("valid until %s", until)
		}
		return nil
	})
}

// awaitChosen waits until the placement has chosen a cluster, and no other.
func (s *scoredSite) awaitChosen(t *testing.T, cluster string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		decisions := &clusterv1beta1.PlacementDecisionList{}
		if err := s.hub.Client(t).List(ctx, decisions, client.InNamespace("default"),
			client.MatchingLabels{fleet.LabelPlacement: "placement1"}); err != nil {
			return err
		}
		var chosen []string
		for _, decision := range decisions.Items {
			for _, one := range decision.Status.Decisions {
				chosen = append(chosen, one.ClusterName)
			}
		}
		if !slices.Equal(chosen, []string{cluster}) {
			return fmt.Errorf("chosen: %v, want %s", chosen, cluster)
		}
		return nil
	})
}
