package frame

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Problem says how many pods of the Deployment are unavailable, and why the first of them is, as far as its status tells; empty if all are
// available.
func Problem(ctx context.Context, reader client.Reader, d *appsv1.Deployment) string {
	want := ptr.Deref(d.Spec.Replicas, 1)
	unavailable := want - d.Status.AvailableReplicas
	if unavailable <= 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d pods of Deployment %s/%s are unavailable", unavailable, want, d.Namespace, d.Name)
	if reason := Waiting(ctx, reader, d); reason != "" {
		return text + ": " + reason
	}
	return text
}

// Waiting says why the first pod of the Deployment that does not run does not, as far as the status tells; empty if it tells nothing. Of a
// Deployment that rolls, that may be a new pod, while the old ones are available.
func Waiting(ctx context.Context, reader client.Reader, d *appsv1.Deployment) string {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return ""
	}
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return ""
	}
	for i := range pods.Items {
		if reason := Reason(&pods.Items[i]); reason != "" {
			return fmt.Sprintf("pod %s: %s", pods.Items[i].Name, reason)
		}
	}
	// Without a pod, the condition of the Deployment says why none could be created: a quota, a missing service account.
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return condition.Message
		}
	}
	return ""
}

// Reason says why a pod does not run or is not ready; empty if nothing is wrong, or nothing is known yet.
func Reason(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return "it cannot be scheduled: " + condition.Message
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if reason := containerReason(&statuses[i]); reason != "" {
				return reason
			}
		}
	}
	return ""
}

func containerReason(status *corev1.ContainerStatus) string {
	if last := status.LastTerminationState.Terminated; last != nil && !status.Ready {
		text := fmt.Sprintf("container %s ended with exit code %d (%s) and has restarted %d times", status.Name, last.ExitCode, last.Reason, status.RestartCount)
		if message := strings.TrimSpace(last.Message); message != "" {
			text += ": " + message
		}
		return text
	}
	waiting := status.State.Waiting
	if waiting == nil || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing" {
		return ""
	}
	text := fmt.Sprintf("container %s waits: %s", status.Name, waiting.Reason)
	if waiting.Message != "" {
		text += ": " + waiting.Message
	}
	return text
}
