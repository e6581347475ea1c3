package problem

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// CA-12 CM-17: the reason why a pod does not run is the same for operators and for who waits, and so is whether waiting is of use.
func TestOf(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "c",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	ended := func(code int32, message string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}
	}
	crashed := waiting("CrashLoopBackOff", "back-off 10s")
	crashed.RestartCount = 3
	crashed.LastTerminationState.Terminated = ended(1, "no such flag\n")
	again := corev1.ContainerStatus{Name: "c", RestartCount: 1,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: crashed.LastTerminationState}
	ready := again
	ready.Ready = true
	containers := func(statuses ...corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: statuses}
	}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		kind   Kind
		final  bool
		says   string
	}{
		"nothing known": {},
		"starting":      {status: containers(waiting("ContainerCreating", "")), kind: Starting},
		"no node": {status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: "0/1 nodes"}}}, kind: Unscheduled, says: "it cannot be scheduled: 0/1 nodes"},
		"no image": {status: containers(waiting("ImagePullBackOff", "not found")), kind: Image, final: true,
			says: "container c waits: ImagePullBackOff: not found"},
		"no registry": {status: containers(waiting("ErrImagePull", "dial tcp: i/o timeout")), kind: Image,
			says: "container c waits: ErrImagePull: dial tcp: i/o timeout"},
		"no name": {status: containers(waiting("InvalidImageName", "")), kind: Image, final: true, says: "container c waits: InvalidImageName"},
		"no Secret": {status: containers(waiting("CreateContainerConfigError", "no x")), kind: Creation,
			says: "container c waits: CreateContainerConfigError: no x"},
		"crash": {status: containers(crashed), kind: Crash,
			says: "container c ended with exit code 1 (Error) and has restarted 3 times: no such flag"},
		"crash, runs again": {status: containers(again), kind: Crash,
			says: "container c ended with exit code 1 (Error) and has restarted 1 times: no such flag"},
		"crash of which nothing is known": {status: containers(waiting("CrashLoopBackOff", "back-off")), kind: Crash,
			says: "container c waits: CrashLoopBackOff: back-off"},
		"ended": {status: containers(corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Terminated: ended(2, "")}}),
			kind: Ended, says: "container c ended with exit code 2 (Error)"},
		"done":                          {status: containers(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended(0, "")}})},
		"the container runs, once more": {status: containers(ready)},
		"in the first container": {status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{waiting("ErrImagePull", "")},
			ContainerStatuses: []corev1.ContainerStatus{waiting("PodInitializing", "")}}, kind: Image, says: "container c waits: ErrImagePull"},
		"ready": {status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{again}}},
	} {
		got := Of(&corev1.Pod{Status: test.status})
		if got.Kind != test.kind || got.Final != test.final || got.String() != test.says {
			t.Errorf("%s: %s, final %t, %q, want %s, final %t, %q", name, got.Kind, got.Final, got, test.kind, test.final, test.says)
		}
	}
}

// Where there is no pod, the Deployment says why.
func TestUncreated(t *testing.T) {
	t.Parallel()
	deployment := &appsv1.Deployment{}
	if got := Uncreated(deployment); got != "" {
		t.Errorf("%q", got)
	}
	deployment.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Message: "well"},
		{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota: small"},
	}
	if got := Uncreated(deployment); got != "exceeded quota: small" {
		t.Errorf("%q", got)
	}
}

// What the controller of Deployments says of an earlier rollout is not said of that which it has not seen.
func TestOverdue(t *testing.T) {
	t.Parallel()
	progressing := func(status corev1.ConditionStatus, reason string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason, Message: "it takes too long"}
	}
	for name, test := range map[string]struct {
		condition appsv1.DeploymentCondition
		observed  int64
		want      string
	}{
		"unknown":     {observed: 2},
		"progressing": {condition: progressing(corev1.ConditionTrue, "ReplicaSetUpdated"), observed: 2},
		"paused":      {condition: progressing(corev1.ConditionUnknown, "DeploymentPaused"), observed: 2},
		"overdue":     {condition: progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded"), observed: 2, want: "it takes too long"},
		"of before":   {condition: progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded"), observed: 1},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: appsv1.DeploymentStatus{
			ObservedGeneration: test.observed, Conditions: []appsv1.DeploymentCondition{test.condition}}}
		if got := Overdue(d); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A Deployment runs once all its pods, and no others, are of its current template and available.
func TestRolledOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status appsv1.DeploymentStatus
		want   bool
	}{
		"unknown":     {appsv1.DeploymentStatus{}, false},
		"runs":        {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, true},
		"of before":   {appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, false},
		"unavailable": {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1}, false},
		"not updated": {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 2}, false},
		"too many":    {appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 3}, false},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)},
			Status: test.status}
		if got := RolledOut(d); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
