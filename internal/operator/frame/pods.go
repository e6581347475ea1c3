package frame

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if reason := Waiting(ctx, reader, d); reason != "" {
		return text + ": " + reason
	}
	return text
}

// Waiting says why the first pod of the Deployment that does not run does not, as far as the status says; empty if it says nothing. Of a
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
		if reason := problem.Of(&pods.Items[i]).String(); reason != "" {
			return fmt.Sprintf("pod %s: %s", pods.Items[i].Name, reason)
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
