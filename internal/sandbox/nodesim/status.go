package nodesim

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sigterm is the exit code of a process that was ended by SIGTERM.
const sigterm = 128 + 15

// finished says whether pod has ended and stays ended.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// runsToCompletion says whether the containers of pod are expected to exit. Only
// the pods of a Job are: of any other that cannot be told without executing it.
func runsToCompletion(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job" && owner.APIVersion == batchv1.SchemeGroupVersion.String() &&
		pod.Spec.RestartPolicy != corev1.RestartPolicyAlways
}

// stopsAt is when the containers of a pod being deleted have ended: when asked
// to, or after the longest preStop sleep, but never after the grace period.
func stopsAt(pod *corev1.Pod) time.Time {
	grace := time.Duration(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	var sleep time.Duration
	for _, c := range pod.Spec.Containers {
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
			sleep = max(sleep, time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second)
		}
	}
	requested := pod.DeletionTimestamp.Add(-grace)
	return requested.Add(min(sleep, grace))
}

// runningStatus is the status of pod with all its containers up.
func runningStatus(pod *corev1.Pod, hostIP, podIP string, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	status.Phase = corev1.PodRunning
	status.HostIP, status.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	status.PodIP, status.PodIPs = podIP, []corev1.PodIP{{IP: podIP}}
	if status.StartTime == nil {
		status.StartTime = &now
	}
	status.InitContainerStatuses = initStatuses(pod, now)
	status.ContainerStatuses = containerStatuses(pod.Spec.Containers, pod.Status.ContainerStatuses, pod, now)

	ready := gatesOpen(pod)
	set := conditionSetter(&status, pod.Generation, now)
	set(corev1.PodScheduled, true, "")
	set(corev1.PodReadyToStartContainers, true, "")
	set(corev1.PodInitialized, true, "")
	set(corev1.ContainersReady, true, "")
	set(corev1.PodReady, ready, "ReadinessGatesNotReady")
	return status
}

// completedStatus is the status of a running pod whose containers exited with 0.
func completedStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := endedStatus(pod, corev1.PodSucceeded, "PodCompleted", now)
	exitAll(&status, 0, "Completed", now)
	return status
}

// stoppedStatus is the status of a pod whose containers were told to stop.
func stoppedStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := endedStatus(pod, corev1.PodFailed, "PodFailed", now)
	exitAll(&status, sigterm, "Error", now)
	return status
}

func endedStatus(pod *corev1.Pod, phase corev1.PodPhase, reason string, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	status.Phase = phase
	set := conditionSetter(&status, pod.Generation, now)
	set(corev1.PodReadyToStartContainers, false, "")
	set(corev1.ContainersReady, false, reason)
	set(corev1.PodReady, false, reason)
	return status
}

// conditionSetter returns a function that sets one condition of status, with
// reason only if the condition does not hold.
func conditionSetter(status *corev1.PodStatus, generation int64, now metav1.Time) func(corev1.PodConditionType, bool, string) {
	return func(kind corev1.PodConditionType, holds bool, reason string) {
		want := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: generation, LastTransitionTime: now}
		if !holds {
			want.Status, want.Reason = corev1.ConditionFalse, reason
		}
		for i, had := range status.Conditions {
			if had.Type != kind {
				continue
			}
			if had.Status == want.Status {
				want.LastTransitionTime = had.LastTransitionTime
			}
			status.Conditions[i] = want
			return
		}
		status.Conditions = append(status.Conditions, want)
	}
}

// gatesOpen says whether every readiness gate of pod is True.
func gatesOpen(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		if !conditionTrue(pod.Status.Conditions, gate.ConditionType) {
			return false
		}
	}
	return true
}

func conditionTrue(conditions []corev1.PodCondition, kind corev1.PodConditionType) bool {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// initStatuses reports init containers as done, sidecars among them as running.
func initStatuses(pod *corev1.Pod, now metav1.Time) []corev1.ContainerStatus {
	statuses := containerStatuses(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, pod, now)
	for i, c := range pod.Spec.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			exit(&statuses[i], 0, "Completed", now)
			statuses[i].Ready = true // an init container is ready when it is done
		}
	}
	return statuses
}

func containerStatuses(containers []corev1.Container, before []corev1.ContainerStatus, pod *corev1.Pod,
	now metav1.Time) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for _, c := range containers {
		statuses = append(statuses, containerStatus(c, before, pod, now))
	}
	return statuses
}

// containerStatus reports one container as running: since before if it was, or
// restarted if its image has changed.
func containerStatus(c corev1.Container, before []corev1.ContainerStatus, pod *corev1.Pod, now metav1.Time) corev1.ContainerStatus {
	restarts := int32(0)
	for _, had := range before {
		switch {
		case had.Name != c.Name || had.ContainerID == "":
		case had.Image == c.Image:
			return had
		default:
			restarts = had.RestartCount + 1
		}
	}
	started := true
	return corev1.ContainerStatus{
		Name:         c.Name,
		Image:        c.Image,
		ImageID:      c.Image,
		ContainerID:  fmt.Sprintf("simulated://%s/%s/%d", pod.UID, c.Name, restarts),
		Ready:        true,
		Started:      &started,
		RestartCount: restarts,
		State:        corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}
}

func exitAll(status *corev1.PodStatus, code int32, reason string, now metav1.Time) {
	for i := range status.InitContainerStatuses {
		exit(&status.InitContainerStatuses[i], code, reason, now)
	}
	for i := range status.ContainerStatuses {
		exit(&status.ContainerStatuses[i], code, reason, now)
	}
}

// exit reports a running container as ended; one that has ended keeps its end.
func exit(c *corev1.ContainerStatus, code int32, reason string, now metav1.Time) {
	if c.State.Running == nil {
		return
	}
	stopped := false
	c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode:    code,
		Reason:      reason,
		StartedAt:   c.State.Running.StartedAt,
		FinishedAt:  now,
		ContainerID: c.ContainerID,
	}}
	c.Ready, c.Started = false, &stopped
}
