package nodesim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// syncPod moves one pod of ours a step on: started, completed, or deleted.
func (s *Simulator) syncPod(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	pod, err := s.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) || err == nil && !s.hosts(pod) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if finished(pod) {
		s.ips.release(pod.Spec.NodeName, pod.UID)
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return s.terminate(ctx, pod)
	case finished(pod):
		return 0, nil
	case pod.Status.Phase == corev1.PodRunning && runsToCompletion(pod):
		return 0, s.report(ctx, pod, completedStatus(pod, s.now()))
	default:
		return 0, s.start(ctx, pod)
	}
}

// start reports pod as running, or corrects the report where it no longer fits.
func (s *Simulator) start(ctx context.Context, pod *corev1.Pod) error {
	node := s.nodes[pod.Spec.NodeName]
	podIP := node.hostIP
	if !pod.Spec.HostNetwork {
		ip, err := s.ips.assign(node.name, node.podCIDR, pod.UID)
		if err != nil {
			return err
		}
		podIP = ip
	}
	return s.report(ctx, pod, runningStatus(pod, node.hostIP, podIP, s.now()))
}

// terminate ends the containers of a pod that is being deleted and lets the API
// server remove it. Simulated containers stop at once when told to, which is
// within every grace period; only a preStop sleep is waited for.
func (s *Simulator) terminate(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	if wait := stopsAt(pod).Sub(s.clock.Now()); wait > 0 && !finished(pod) {
		return wait, nil
	}
	if len(pod.Finalizers) > 0 && !finished(pod) {
		// The pod outlives this delete, and whoever holds the finalizer (the Job
		// controller) wants to see how it ended.
		if err := s.report(ctx, pod, stoppedStatus(pod, s.now())); err != nil {
			return 0, err
		}
	}
	if ptrZero(pod.DeletionGracePeriodSeconds) {
		return 0, nil
	}
	err := s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("remove pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return 0, nil
}

func ptrZero(v *int64) bool { return v != nil && *v == 0 }

// report writes status if it differs from what pod has.
func (s *Simulator) report(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(pod.Status, status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		// The UID keeps the patch from a new pod of the same name.
		"metadata": map[string]any{"uid": pod.UID},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("encode status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("report status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// list returns the pods of our nodes.
func (s *Simulator) list() []*corev1.Pod {
	all, err := s.pods.List(labels.Everything())
	if err != nil {
		return nil // a lister reads memory and does not fail
	}
	ours := all[:0:0]
	for _, pod := range all {
		if s.hosts(pod) && !finished(pod) && !pod.Spec.HostNetwork {
			ours = append(ours, pod)
		}
	}
	return ours
}

func (s *Simulator) now() metav1.Time { return metav1.NewTime(s.clock.Now()).Rfc3339Copy() }
