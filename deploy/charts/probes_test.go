package charts

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// startSeconds is how long every container may take to start on a node where all others start, too.
const startSeconds = 300

// Nothing is killed while it starts: what a chart has probed for being alive is first given time to start, whatever its values are.
func TestStartupProbes(t *testing.T) {
	t.Parallel()
	for _, chart := range all {
		tried := append([]effect{{}}, effects(t, chart)...)
		probed, deployed := 0, false
		for _, e := range tried {
			for _, object := range install(chart, show(e.Values)).objects(t) {
				if object.GetKind() != "Deployment" {
					continue
				}
				deployed = true
				deployment := &appsv1.Deployment{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
					t.Fatal(err)
				}
				for _, container := range deployment.Spec.Template.Spec.Containers {
					if container.LivenessProbe != nil {
						probed++
						checkStart(t, chart+"/"+deployment.Name, container)
					}
				}
			}
		}
		if deployed && probed == 0 {
			t.Errorf("chart %s: nothing is probed", chart)
		}
	}
}

func checkStart(t *testing.T, name string, container corev1.Container) {
	t.Helper()
	start, live := container.StartupProbe, container.LivenessProbe
	switch {
	case start == nil:
		t.Errorf("%s has no startup probe", name)
	case !reflect.DeepEqual(start.ProbeHandler, live.ProbeHandler):
		t.Errorf("%s: the startup probe asks %+v, the liveness probe %+v", name, start.HTTPGet, live.HTTPGet)
	case start.PeriodSeconds*start.FailureThreshold < startSeconds:
		t.Errorf("%s may take %d seconds to start, want %d", name, start.PeriodSeconds*start.FailureThreshold, startSeconds)
	case live.InitialDelaySeconds > 0:
		t.Errorf("%s: initialDelaySeconds of the liveness probe is %d; the startup probe stands for it", name, live.InitialDelaySeconds)
	}
}

// What is installed by default lets its node be drained, even if there is no other: nothing is kept by a budget.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	for _, chart := range all {
		for _, object := range install(chart, "").objects(t) {
			if object.GetKind() == "PodDisruptionBudget" {
				t.Errorf("chart %s keeps pods on the only node by PodDisruptionBudget %s", chart, object.GetName())
			}
		}
	}
}
