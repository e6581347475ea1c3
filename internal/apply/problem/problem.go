// Package problem says whether Deployments run, and why pods do not, for the conditions of the operators and for who waits for an
// installation: pure.
package problem

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Kind is what a pod lacks.
type Kind string

// The kinds.
const (
	// None is that of a pod that is ready, or about which nothing is known.
	None Kind = ""
	// Unscheduled is that no node takes the pod.
	Unscheduled Kind = "Unscheduled"
	// Image is that an image cannot be pulled.
	Image Kind = "Image"
	// Creation is that a container cannot be created, such as for want of a Secret.
	Creation Kind = "Creation"
	// Crash is that a program has ended and is started again.
	Crash Kind = "Crash"
	// Ended is that a program has ended with an error, and is not started again yet.
	Ended Kind = "Ended"
	// Starting is that a container is being created, as far as its status says.
	Starting Kind = "Starting"
	// Waiting is that a container waits for any other reason.
	Waiting Kind = "Waiting"
)

// Reasons of the kubelet for an image that it could not pull: when it has tried, and until it tries again.
const (
	ErrImagePull     = "ErrImagePull"
	ImagePullBackOff = "ImagePullBackOff"
)

// Problem is what keeps a pod from being ready.
type Problem struct {
	Kind Kind
	// Reason and Message are the words of the scheduler, the kubelet or the program itself.
	Reason, Message string
	// Container is the one that it is about; nil for Unscheduled.
	Container *corev1.ContainerStatus
	// ExitCode is that with which the program ended last, of Crash and Ended.
	ExitCode int32
	// Final says that no waiting mends it.
	Final bool
}

// Of is the first problem of a pod.
func Of(pod *corev1.Pod) Problem {
	if Ready(pod) {
		return Problem{}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return Problem{Kind: Unscheduled, Reason: condition.Reason, Message: condition.Message}
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if found := ofContainer(&statuses[i]); found.Kind != None {
				found.Container = &statuses[i]
				return found
			}
		}
	}
	return Problem{}
}

// Ready reports whether a pod is ready.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

func ofContainer(status *corev1.ContainerStatus) Problem {
	waiting := status.State.Waiting
	if waiting != nil {
		if kind, final := ofImage(waiting); kind != None {
			return Problem{Kind: kind, Reason: waiting.Reason, Message: waiting.Message, Final: final}
		}
	}
	if last := status.LastTerminationState.Terminated; last != nil && !status.Ready {
		return Problem{Kind: Crash, Reason: last.Reason, Message: strings.TrimSpace(last.Message), ExitCode: last.ExitCode}
	}
	if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 {
		return Problem{Kind: Ended, Reason: ended.Reason, Message: strings.TrimSpace(ended.Message), ExitCode: ended.ExitCode}
	}
	if waiting == nil {
		return Problem{}
	}
	found := Problem{Kind: Waiting, Reason: waiting.Reason, Message: waiting.Message}
	switch waiting.Reason {
	case "CrashLoopBackOff":
		found.Kind = Crash
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		found.Kind = Creation
	case "ContainerCreating", "PodInitializing":
		found.Kind = Starting
	}
	return found
}

// missingImage is what registries and container runtimes say of images that there are not, or that may not be pulled.
var missingImage = regexp.MustCompile(`(?i)not found|manifest unknown|does not exist|denied|unauthorized|invalid reference`)

// ofImage reports whether a container waits for its image, and in vain.
func ofImage(waiting *corev1.ContainerStateWaiting) (kind Kind, final bool) {
	switch waiting.Reason {
	case "InvalidImageName", "ErrImageNeverPull":
		return Image, true
	case ErrImagePull, ImagePullBackOff:
		return Image, missingImage.MatchString(waiting.Message)
	}
	return None, false
}

// String says what the problem is, for a condition; empty if there is none, or the pod is starting.
func (p Problem) String() string {
	ended := fmt.Sprintf("ended with exit code %d (%s)", p.ExitCode, p.Reason)
	var text string
	switch {
	case p.Kind == None || p.Kind == Starting:
		return ""
	case p.Kind == Unscheduled:
		return "it cannot be scheduled: " + p.Message
	case p.Kind == Ended:
		text = fmt.Sprintf("container %s %s", p.Container.Name, ended)
	case p.Kind == Crash && p.Container.LastTerminationState.Terminated != nil:
		text = fmt.Sprintf("container %s %s and has restarted %d times", p.Container.Name, ended, p.Container.RestartCount)
	default:
		text = fmt.Sprintf("container %s waits: %s", p.Container.Name, p.Reason)
	}
	if p.Message != "" {
		text += ": " + p.Message
	}
	return text
}

// RolledOut reports whether a Deployment runs as it is written: all pods are of its current template and available.
func RolledOut(d *appsv1.Deployment) bool {
	want := ptr.Deref(d.Spec.Replicas, 1)
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas >= want && d.Status.AvailableReplicas >= want &&
		d.Status.Replicas <= want
}

// Uncreated says why pods of a Deployment cannot be created, such as for a quota, or because admission refuses them; empty if they can.
func Uncreated(deployment *appsv1.Deployment) string {
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return condition.Message
		}
	}
	return ""
}

// Overdue says that a Deployment has not rolled out in the time that it has, as its controller does; empty if it has not said so of what is
// written now.
func Overdue(deployment *appsv1.Deployment) string {
	if deployment.Status.ObservedGeneration < deployment.Generation {
		return ""
	}
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse &&
			condition.Reason == progressDeadlineExceeded {
			return condition.Message
		}
	}
	return ""
}

// progressDeadlineExceeded is the reason of the controller of Deployments.
const progressDeadlineExceeded = "ProgressDeadlineExceeded"
