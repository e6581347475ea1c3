package nodesim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var (
	t0 = metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	t1 = metav1.NewTime(t0.Add(time.Minute))
)

func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid", Generation: 1},
		Spec: corev1.PodSpec{NodeName: "node-1", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "main", Image: "one"}}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func run(pod *corev1.Pod, now metav1.Time) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status = runningStatus(pod, "172.18.0.2", "10.244.0.1", now)
	return pod
}

// A running pod whose report fits is reported the same again, so that nothing is written.
func TestRunningStatusSettles(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	pod := run(newPod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "i"}, {Name: "sidecar", Image: "s", RestartPolicy: &always}}
	}), t0)
	again := run(pod, t1)
	if !equalStatus(pod.Status, again.Status) {
		t.Errorf("reported again:\n%+v\nwas\n%+v", again.Status, pod.Status)
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		if !conditionTrue(pod.Status.Conditions, kind) {
			t.Errorf("condition %s is not True", kind)
		}
	}
	init, sidecar := pod.Status.InitContainerStatuses[0], pod.Status.InitContainerStatuses[1]
	if init.State.Terminated == nil || init.State.Terminated.ExitCode != 0 {
		t.Errorf("init container: %+v, want exit 0", init.State)
	}
	if sidecar.State.Running == nil || !sidecar.Ready {
		t.Errorf("sidecar: %+v, want running and ready", sidecar)
	}
}

func equalStatus(a, b corev1.PodStatus) bool { return (&a).String() == (&b).String() }

// A container whose image changes restarts; the others go on.
func TestNewImageRestartsContainer(t *testing.T) {
	t.Parallel()
	pod := run(newPod(func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "other", Image: "same"})
	}), t0)
	pod.Spec.Containers[0].Image = "two"
	pod = run(pod, t1)
	changed, same := pod.Status.ContainerStatuses[0], pod.Status.ContainerStatuses[1]
	if changed.Image != "two" || changed.RestartCount != 1 || !changed.State.Running.StartedAt.Equal(&t1) {
		t.Errorf("container with the new image: %+v", changed)
	}
	if same.RestartCount != 0 || !same.State.Running.StartedAt.Equal(&t0) {
		t.Errorf("the other container: %+v", same)
	}
}

// A pod is Ready only when its readiness gates are open.
func TestReadinessGates(t *testing.T) {
	t.Parallel()
	pod := run(newPod(func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	}), t0)
	if conditionTrue(pod.Status.Conditions, corev1.PodReady) || !conditionTrue(pod.Status.Conditions, corev1.ContainersReady) {
		t.Errorf("closed gate: %+v, want ContainersReady but not Ready", pod.Status.Conditions)
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
	pod = run(pod, t1)
	if !conditionTrue(pod.Status.Conditions, corev1.PodReady) {
		t.Errorf("open gate: %+v, want Ready", pod.Status.Conditions)
	}
}

func TestRunsToCompletion(t *testing.T) {
	t.Parallel()
	owner := func(apiVersion, kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Controller: ptr.To(true)}}
		}
	}
	restart := func(policy corev1.RestartPolicy) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"of a Job":                 {newPod(owner("batch/v1", "Job"), restart(corev1.RestartPolicyNever)), true},
		"of a Job, on failure":     {newPod(owner("batch/v1", "Job"), restart(corev1.RestartPolicyOnFailure)), true},
		"of a Job of another API":  {newPod(owner("example.com/v1", "Job"), restart(corev1.RestartPolicyNever)), false},
		"of a ReplicaSet":          {newPod(owner("apps/v1", "ReplicaSet")), false},
		"on its own":               {newPod(restart(corev1.RestartPolicyNever)), false},
		"of a Job, restart always": {newPod(owner("batch/v1", "Job")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := runsToCompletion(test.pod); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	pod := run(newPod(), t0)
	completed, stopped := completedStatus(pod, t1), stoppedStatus(pod, t1)
	if completed.Phase != corev1.PodSucceeded || completed.ContainerStatuses[0].State.Terminated.ExitCode != 0 {
		t.Errorf("completed: %+v", completed)
	}
	if stopped.Phase != corev1.PodFailed || stopped.ContainerStatuses[0].State.Terminated.ExitCode != 143 {
		t.Errorf("stopped: %+v", stopped)
	}
	for _, status := range []corev1.PodStatus{completed, stopped} {
		if conditionTrue(status.Conditions, corev1.PodReady) || status.ContainerStatuses[0].Ready {
			t.Errorf("%s and still ready", status.Phase)
		}
	}
}

// Containers stop when asked, later only for a preStop sleep, and never after the grace period.
func TestStopsAt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		grace, sleep int64
		want         time.Duration
	}{
		"at once":                {30, 0, 0},
		"after the sleep":        {30, 10, 10 * time.Second},
		"cut short by the grace": {5, 10, 5 * time.Second},
		"by force":               {0, 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := newPod(func(p *corev1.Pod) {
				p.DeletionTimestamp = ptr.To(metav1.NewTime(t0.Add(time.Duration(test.grace) * time.Second)))
				p.DeletionGracePeriodSeconds = &test.grace
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: test.sleep}}}
			})
			if got := stopsAt(pod).Sub(t0.Time); got != test.want {
				t.Errorf("got %s after the request, want %s", got, test.want)
			}
		})
	}
}
