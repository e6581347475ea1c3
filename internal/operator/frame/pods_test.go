package frame_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-io/capstan/internal/operator/frame"
)

func TestReason(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "c",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	crashed := waiting("CrashLoopBackOff", "back-off 10s")
	crashed.RestartCount = 3
	crashed.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "no such flag\n"}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"nothing known": {corev1.PodStatus{}, ""},
		"starting":      {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ContainerCreating", "")}}, ""},
		"no node": {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: "0/1 nodes"}}},
			"it cannot be scheduled: 0/1 nodes"},
		"no image": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ImagePullBackOff", "not found")}},
			"container c waits: ImagePullBackOff: not found"},
		"crash": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{crashed}},
			"container c ended with exit code 1 (Error) and has restarted 3 times: no such flag"},
		"in the first container": {corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{waiting("ErrImagePull", "")},
			ContainerStatuses: []corev1.ContainerStatus{waiting("PodInitializing", "")}}, "container c waits: ErrImagePull"},
	} {
		if got := frame.Reason(&corev1.Pod{Status: test.status}); strings.TrimSpace(got) != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
