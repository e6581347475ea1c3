package installation

import (
	"context"
	"errors"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capstan-io/capstan/internal/apply/problem"
)

// errHopeless is why a wait ended that could have gone on for ever.
var errHopeless = errors.New("waiting does not mend this")

// Attended are the pods that somebody waits for: those of one Deployment, or of all in a namespace. They are those that are wanted now only
// once the status of About, if there is one, is about its present generation.
type Attended struct {
	Namespace, Deployment string
	About                 Reference
}

// Attend waits, and tells meanwhile what keeps pods from being ready, each reason once. What no waiting can mend, such as an image that
// does not exist, ends the wait.
func (c *Cluster) Attend(ctx context.Context, pods []Attended, tell func(string), wait func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	for _, attended := range pods {
		watching.Go(func() {
			if c.attend(ctx, attended, tell) {
				end(errHopeless)
			}
		})
	}
	err := wait(ctx)
	end(nil)
	watching.Wait()
	return err
}

// attend tells what is wrong with pods until the context ends, or until it is hopeless. Who may not watch pods is told nothing.
func (c *Cluster) attend(ctx context.Context, attended Attended, tell func(string)) (hopeless bool) {
	reported := map[string]bool{}
	_ = c.await(ctx, watched{kind: KindPod, namespace: attended.Namespace}, func(found []unstructured.Unstructured) bool {
		for i := range found {
			pod := &corev1.Pod{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found[i].Object, pod); err != nil || pod.DeletionTimestamp != nil {
				continue
			}
			trouble := problem.Of(pod)
			key := pod.Name + " " + string(trouble.Kind)
			if !isTrouble(trouble) || reported[key] && !trouble.Final || !c.isCurrent(ctx, attended, pod) {
				continue
			}
			if !reported[key] {
				reported[key] = true
				tell(c.whyNotReady(ctx, pod))
			}
			hopeless = hopeless || trouble.Final
		}
		return hopeless
	})
	return hopeless
}

// isTrouble tells whether a pod is not just on its way.
func isTrouble(found problem.Problem) bool {
	return found.Kind != problem.None && found.Kind != problem.Starting && found.Kind != problem.Waiting
}

// isCurrent tells whether a pod is one that a Deployment wants now: one of an earlier image says nothing about what was just applied.
func (c *Cluster) isCurrent(ctx context.Context, attended Attended, pod *corev1.Pod) bool {
	if attended.About.Name != "" && !c.isObserved(ctx, attended.About) {
		return false
	}
	deployments, err := c.List(ctx, KindDeployment, attended.Namespace, "")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(deployments, func(object unstructured.Unstructured) bool {
		deployment := &appsv1.Deployment{}
		if attended.Deployment != "" && object.GetName() != attended.Deployment ||
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

// isObserved tells whether the status of an object is about its present generation.
func (c *Cluster) isObserved(ctx context.Context, of Reference) bool {
	object, err := c.Get(ctx, of)
	if err != nil || object == nil {
		return false
	}
	observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	return observed >= object.GetGeneration()
}
