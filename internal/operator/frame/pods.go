package frame

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/apply/problem"
)

// Problem says how many pods of the Deployment are unavailable, and why the first of them is, as far as its status says; empty if all are
// available.
func Problem(ctx context.Context, reader client.Reader, d *appsv1.Deployment) string {
	want := ptr.Deref(d.Spec.Replicas, 1)
	unavailable := want - d.Status.AvailableReplicas
	if unavailable <= 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d pods of Deployment %s/%s are unavailable", unavailable, want, d.Namespace, d.Name)
	return withReason(text, Waiting(ctx, reader, d))
}

// RolloutProblem is the [Problem] of the Deployment or, if enough pods are available, which may be former ones, why it has not rolled
// out; empty if it has, or a rollout goes on.
func RolloutProblem(ctx context.Context, reader client.Reader, d *appsv1.Deployment) string {
	if text := Problem(ctx, reader, d); text != "" || problem.RolledOut(d) {
		return text
	}
	reason := cmp.Or(Waiting(ctx, reader, d), problem.Overdue(d))
	if reason == "" {
		return ""
	}
	return fmt.Sprintf("Deployment %s/%s has not rolled out: %s", d.Namespace, d.Name, reason)
}

func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// GetDeployment reads a Deployment of the cluster of the operator.
type GetDeployment func(context.Context, types.NamespacedName) (*appsv1.Deployment, error)

// Rolling names those of the Deployments among the objects that do not run yet as they were applied, and says why.
func Rolling(ctx context.Context, reader client.Reader, get GetDeployment, applied ...client.Object) (rolling []string, err error) {
	for _, object := range applied {
		deployment, isDeployment := object.(*appsv1.Deployment)
		if !isDeployment {
			continue
		}
		live, err := get(ctx, client.ObjectKeyFromObject(deployment))
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && isApplied(live, deployment) && problem.RolledOut(live) {
			continue
		}
		text := deployment.Name
		if reason := Waiting(ctx, reader, deployment); reason != "" {
			text += " (" + reason + ")"
		}
		rolling = append(rolling, text)
	}
	return rolling, nil
}

// isApplied reports whether the live Deployment is what was applied.
func isApplied(live, applied *appsv1.Deployment) bool {
	return live.UID == applied.UID && live.Generation >= applied.Generation
}

// Waiting says why the oldest pod of the Deployment that does not run does not, as far as the status says; empty if it says nothing. Of a
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
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { // caches list them in any order
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil {
			continue // it is to end
		}
		if reason := problem.Of(pod).String(); reason != "" {
			return fmt.Sprintf("pod %s: %s", pod.Name, reason)
		}
	}
	return problem.Uncreated(d)
}

// stripPod transforms the pods of a cache: it keeps what says why a pod does not run.
func stripPod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields, pod.Annotations, pod.Spec = nil, nil, corev1.PodSpec{}
	}
	return object, nil
}
