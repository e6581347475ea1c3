package addons

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// scored is the example resource-usage-collect.
const scored = "resource-usage-collect"

// The article about placement by scores, with the example resource-usage-collect: its agents score two clusters, by which a placement
// chooses the one with most CPU left, and the other one when that is used. RU-01 RU-02 RU-03 RU-04 PL-12 PL-20.
func TestExampleResourceUsage(t *testing.T) {
	t.Parallel()
	// The add-on is installed on all clusters of a hub, so the hub is the test's own; so are the clusters, whose pods count.
	site := &scoredSite{hub: env.StartHub(t, ""), clusters: map[string]*env.Server{"cluster1": env.StartSandbox(t),
		"cluster2": env.StartSandbox(t)}}
	for name, cluster := range site.clusters {
		env.Join(t, site.hub, cluster, name)
	}
	site.bindDefaultSet(t)
	for _, file := range []string{"hub.yaml", "placement.yaml", "addondeploymentconfig.yaml", "addontemplate.yaml",
		"clustermanagementaddon.yaml"} {
		for _, object := range exampleObjects(t, scored, file) {
			framework.Create(t, site.hub.Client(t), object)
		}
	}
	site.runAgent(t, "cluster1", "cluster2")
	site.runAgent(t, "cluster2", "cluster1")
	// What the agent itself requests is little: it changes no score of a cluster with 32 cores by more than 1.
	site.awaitCPU(t, "cluster1", 31)
	site.awaitCPU(t, "cluster2", 31)
	site.place(t)
	site.awaitChosen(t, "cluster1")
	site.awaitEvents(t, "DecisionCreate", "ScoreUpdate")

	site.use(t, "cluster1", "6")
	site.awaitCPU(t, "cluster1", 25)
	site.awaitChosen(t, "cluster2")
	site.awaitEvents(t, "DecisionUpdate", "ScoreUpdate cluster1:25 cluster2:31")
	site.use(t, "cluster2", "12")
	site.awaitCPU(t, "cluster2", 19)
	site.awaitChosen(t, "cluster1")
	site.awaitEvents(t, "ScoreUpdate cluster1:25 cluster2:19")
}

// placementByScore is the first one of the article.
const placementByScore = `
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata:
  name: placement
  namespace: ns1
spec:
  numberOfClusters: 3
  prioritizerPolicy:
    mode: Exact
    configurations:
    - scoreCoordinate:
        type: AddOn
        addOn:
          resourceName: default
          scoreName: cpuAvailable
      weight: 1
`

// PL-07 PL-12: the first example of the article about placement by scores chooses the three clusters with most CPU available.
func TestExampleOfScores(t *testing.T) {
	t.Parallel()
	// Without the controllers of registration, clusters without agents have no taint, which the example does not tolerate.
	site := framework.NewSiteOn(t, env.StartHub(t, "placement"), "ns1")
	for end, cpu := range map[string]int32{"cluster1": 66, "cluster2": 12, "cluster3": -40, "cluster4": 35} {
		cluster := site.Add(t, end, nil)
		framework.Namespace(t, site.C, cluster.Name)
		score := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Name, Name: "default"}}
		framework.Create(t, site.C, score)
		score.Status = clusterv1alpha1.AddOnPlacementScoreStatus{
			Conditions: []metav1.Condition{{Type: "AddOnPlacementScoreUpdated", Status: metav1.ConditionTrue, Reason: "AddOnPlacementScoreUpdated",
				Message: "AddOnPlacementScore updated successfully", LastTransitionTime: metav1.Now()}},
			ValidUntil: ptr.To(metav1.NewTime(time.Now().Add(time.Hour))),
			Scores:     []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "cpuAvailable", Value: cpu}, {Name: "memAvailable", Value: 55}},
		}
		if err := site.C.Status().Update(t.Context(), score); err != nil {
			t.Fatal(err)
		}
	}
	placement := &clusterv1beta1.Placement{}
	if err := yaml.UnmarshalStrict([]byte(placementByScore), placement); err != nil {
		t.Fatal(err)
	}
	framework.Create(t, site.C, placement)
	site.Await(t, "placement", "cluster1", "cluster2", "cluster4")
}

type scoredSite struct {
	hub      *env.Server
	clusters map[string]*env.Server
}

// bindDefaultSet shows the clusters and their set, and binds that to the namespace default.
func (s *scoredSite) bindDefaultSet(t *testing.T) {
	t.Helper()
	for _, cluster := range []string{"cluster1", "cluster2"} {
		s.awaitRow(t, "clusters", "NAME ACCEPTED AVAILABLE CLUSTERSET CPU MEMORY KUBERNETES VERSION",
			regexp.MustCompile(`^`+cluster+` true True default 32 [0-9]+[KMGT]i v1\.[0-9]+\.[0-9]+`))
	}
	const header = "NAME BOUND NAMESPACES STATUS"
	s.awaitRow(t, "clustersets", header, regexp.MustCompile(`^default - 2 ManagedClusters selected\b`))
	s.hub.Capstan(t, "", "clusterset", "bind", "default", "--namespace", "default").Succeeds(t,
		"Clusterset default is bound to Namespace default")
	s.awaitRow(t, "clustersets", header, regexp.MustCompile(`^default default 2 ManagedClusters selected\b`))
}

// awaitRow waits until "capstan get" of a kind prints a row below a header, with one space between columns.
func (s *scoredSite) awaitRow(t *testing.T, kind, header string, row *regexp.Regexp) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		result := s.hub.Capstan(t, "", "get", kind, "--output", "table")
		result.Succeeds(t)
		var rows []string
		for line := range strings.Lines(result.Out) {
			rows = append(rows, strings.Join(strings.Fields(line), " "))
		}
		if len(rows) == 0 || !strings.HasPrefix(rows[0], header) || !slices.ContainsFunc(rows[1:], row.MatchString) {
			return fmt.Errorf("%q without %s and %s", rows, header, row)
		}
		return nil
	})
}

// place makes the placement of the article. The file has the binding of the set, too, which the command has made.
func (s *scoredSite) place(t *testing.T) {
	t.Helper()
	for _, object := range exampleObjects(t, scored, "most-cpu.yaml") {
		if object.GetKind() == "Placement" {
			framework.Create(t, s.hub.Client(t), object)
			continue
		}
		bound := object.DeepCopy()
		framework.Get(t, s.hub.Client(t), client.ObjectKeyFromObject(object), bound)
		if !equality.Semantic.DeepEqual(bound.Object["spec"], object.Object["spec"]) {
			t.Errorf("bound is %v, and most-cpu.yaml has %v", bound.Object["spec"], object.Object["spec"])
		}
	}
}

// awaitEvents waits until the placement has events, given as their reason and, if it counts, what they say.
func (s *scoredSite) awaitEvents(t *testing.T, want ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		events := &corev1.EventList{} // what kubectl describe reads
		if err := s.hub.Client(t).List(ctx, events, client.InNamespace("default")); err != nil {
			return err
		}
		var have []string
		for _, event := range events.Items {
			if event.InvolvedObject.Kind == "Placement" && event.InvolvedObject.Name == "placement1" && event.Type == corev1.EventTypeNormal {
				have = append(have, event.Reason, event.Reason+" "+event.Message)
			}
		}
		for _, one := range want {
			if !slices.Contains(have, one) {
				return fmt.Errorf("there is no event %q among %q", one, have)
			}
		}
		return nil
	})
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
