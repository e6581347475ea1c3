package installation

import (
	"context"
	"errors"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/apply/problem"
)

// errUnrecoverable is why a wait ended that could have gone on for ever.
var errUnrecoverable = errors.New("waiting does not mend this")

// MonitoredPods are the pods that somebody waits for: those of one Deployment, or of all in a namespace. They are the current ones
// only once the status of Owner, if there is one, is about its present generation.
type MonitoredPods struct {
	Namespace, Deployment string
	Owner                 Reference
}

// MonitorPods runs wait, and reports meanwhile what keeps pods from being ready, each reason once. A problem that is final, such as an
// image that does not exist, ends the wait. A pull that had failed before does so once it has failed again.
func (c *Cluster) MonitorPods(ctx context.Context, pods []MonitoredPods, before FailedPulls, report func(string),
	wait func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	var monitors sync.WaitGroup
	for _, monitored := range pods {
		monitors.Go(func() {
			if c.monitorPods(ctx, monitored, before, report) {
				end(errUnrecoverable)
			}
		})
	}
	err := wait(ctx)
	end(nil)
	monitors.Wait()
	return err
}

// monitorPods reports what is wrong with pods until the context ends, or until a problem is final. Where pods may not be watched, it
// reports nothing.
func (c *Cluster) monitorPods(ctx context.Context, monitored MonitoredPods, before FailedPulls, report func(string)) (final bool) {
	reported := map[string]bool{}
	_ = c.await(ctx, Reference{GroupVersionKind: KindPod, Namespace: monitored.Namespace}, func(objects []*unstructured.Unstructured) bool {
		for _, pod := range podsOf(objects) {
			found := problem.Of(pod)
			found.Final = found.Final && !before.has(pod, found)
			key := pod.Name + " " + string(found.Kind)
			if !isProblem(found) || reported[key] && !found.Final || !c.isCurrent(ctx, monitored, pod) {
				continue
			}
			if !reported[key] {
				reported[key] = true
				report(c.whyNotReady(ctx, pod))
			}
			final = final || found.Final
		}
		return final
	})
	return final
}

// podsOf are the pods among objects that are not being deleted.
func podsOf(objects []*unstructured.Unstructured) (pods []*corev1.Pod) {
	for _, object := range objects {
		pod := &corev1.Pod{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod)
		if err == nil && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// FailedPulls are the resource versions of pods whose image could not be pulled before a command changed anything. The kubelet may have
// tried that with another password, or before the image was in the registry.
type FailedPulls map[types.NamespacedName]string

// FailedPulls reads which pulls have failed in some namespaces. Where pods may not be listed, nothing is said about them later either.
func (c *Cluster) FailedPulls(ctx context.Context, namespaces ...string) (FailedPulls, error) {
	failed := FailedPulls{}
	for _, namespace := range namespaces {
		found, err := c.List(ctx, KindPod, namespace, "")
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
		for _, pod := range podsOf(pointersTo(found)) {
			if problem.Of(pod).Kind == problem.Image {
				failed[nameOf(pod)] = pod.ResourceVersion
			}
		}
	}
	return failed, nil
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// has reports whether the problem of a pod still is the failure of that time: one of a new try has the reason ErrImagePull in a status that
// was written since.
func (f FailedPulls) has(pod *corev1.Pod, found problem.Problem) bool {
	version, failed := f[nameOf(pod)]
	switch found.Reason {
	case problem.ErrImagePull:
		return failed && pod.ResourceVersion == version
	case problem.ImagePullBackOff:
		return failed
	}
	return false
}

// isProblem reports whether a pod is not just starting.
func isProblem(found problem.Problem) bool {
	return found.Kind != problem.None && found.Kind != problem.Starting && found.Kind != problem.Waiting
}

// isCurrent reports whether a pod is one that a Deployment wants now: one of an earlier image says nothing about what was just applied.
func (c *Cluster) isCurrent(ctx context.Context, monitored MonitoredPods, pod *corev1.Pod) bool {
	if monitored.Owner.Name != "" && !c.isObserved(ctx, monitored.Owner) {
		return false
	}
	deployments, err := c.List(ctx, KindDeployment, monitored.Namespace, "")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(deployments, func(object unstructured.Unstructured) bool {
		deployment := &appsv1.Deployment{}
		if monitored.Deployment != "" && object.GetName() != monitored.Deployment ||
			runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment) != nil {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
		return err == nil && selector.Matches(labels.Set(pod.Labels)) &&
			slices.Equal(images(pod.Spec.Containers), images(deployment.Spec.Template.Spec.Containers))
	})
}

func images(containers []corev1.Container) []string {
	var all []string
	for i := range containers {
		all = append(all, containers[i].Image)
	}
	return all
}

// isObserved reports whether the status of an object is about its present generation.
func (c *Cluster) isObserved(ctx context.Context, of Reference) bool {
	object, err := c.Get(ctx, of)
	if err != nil || object == nil {
		return false
	}
	observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	return observed >= object.GetGeneration()
}
