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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// syncPod moves one pod of ours a step on: started, completed, or deleted.
func (s *Simulator) syncPod(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	pod, err := s.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !s.hosts(pod) {
		return 0, s.removeOrphan(ctx, pod)
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
		// The pod outlives this delete, and the controller that holds the finalizer (the Job
		// controller) wants to see how it ended.
		if err := s.report(ctx, pod, stoppedStatus(pod, s.now())); err != nil {
			return 0, err
		}
	}
	if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace == 0 {
		return 0, nil // done; only finalizers keep the object
	}
	return 0, s.remove(ctx, pod)
}

// removeOrphan removes a pod whose node is gone, as its controller makes a new
// one only then. A pod on an existing node is not the simulator's to delete.
func (s *Simulator) removeOrphan(ctx context.Context, pod *corev1.Pod) error {
	if _, err := s.nodeLister.Get(pod.Spec.NodeName); err == nil {
		return nil
	}
	_, err := s.client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	if !finished(pod) {
		if err := s.report(ctx, pod, stoppedStatus(pod, s.now())); err != nil {
			return err
		}
	}
	return s.remove(ctx, pod)
}

func (s *Simulator) remove(ctx context.Context, pod *corev1.Pod) error {
	err := s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

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

func (s *Simulator) now() metav1.Time { return metav1.NewTime(s.clock.Now()).Rfc3339Copy() }
