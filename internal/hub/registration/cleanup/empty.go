package cleanup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// remaining are the objects of a resource that are left in the namespace of a cluster, with the finalizers that they had before this pass.
type remaining struct {
	resource schema.GroupVersionResource
	objects  []metav1.PartialObjectMetadata
}

// blockedBy names objects that are being deleted, with the finalizers that they have: without those of agents, once nobody waits for the
// agent.
func (r remaining) blockedBy(withoutAgent bool) string {
	var blocked []string
	for i := range r.objects {
		o := &r.objects[i]
		finalizers := o.Finalizers
		if withoutAgent {
			finalizers = ofOthers(finalizers)
		}
		if !o.DeletionTimestamp.IsZero() && len(finalizers) > 0 {
			blocked = append(blocked, fmt.Sprintf("%s (%s)", o.Name, strings.Join(finalizers, ", ")))
		}
	}
	if len(blocked) == 0 {
		return ""
	}
	return ", held by finalizers: " + text.FirstFew(blocked)
}

// empty deletes the objects of the resource with the lowest priority in the cluster's namespace, and returns those of all priorities. For
// objects that are given up, it does not wait for the agent.
func (c *Controller) empty(ctx context.Context, cluster string, resource schema.GroupVersionResource,
	givenUp func(metav1.Object) bool) ([]metav1.PartialObjectMetadata, error) {
	objects := c.objects.Resource(resource).Namespace(cluster)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || err == nil && len(list.Items) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, o := range first(list.Items) {
		if o.DeletionTimestamp.IsZero() {
			err := objects.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return nil, err
			}
		}
		if !givenUp(&o) {
			continue
		}
		if err := release(ctx, objects, o); err != nil {
			return nil, err
		}
	}
	c.leaving.await(cluster, resource, list.ResourceVersion)
	return list.Items, nil
}

// first returns the objects with the lowest priority.
func first(objects []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	lowest := slices.MinFunc(objects, func(a, b metav1.PartialObjectMetadata) int { return priority(a) - priority(b) })
	return slices.DeleteFunc(slices.Clone(objects), func(o metav1.PartialObjectMetadata) bool { return priority(o) != priority(lowest) })
}

// priority returns a priority from 0, which is deleted first, to 100. An invalid value counts as 0.
func priority(o metav1.PartialObjectMetadata) int {
	p, err := strconv.Atoi(o.Annotations[fleet.AnnotationCleanupPriority])
	if err != nil || p < 0 || p > 100 {
		return 0
	}
	return p
}

// release removes the finalizers that wait for the agent. Admission keeps agents from adding other finalizers to works.
func release(ctx context.Context, objects metadata.ResourceInterface, o metav1.PartialObjectMetadata) error {
	others := ofOthers(o.Finalizers)
	if len(others) == len(o.Finalizers) {
		return nil
	}
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": others, "uid": o.UID}})
	if err != nil {
		return err
	}
	_, err = objects.Patch(ctx, o.Name, types.MergePatchType, change, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another object has its name now
	}
	return err
}

// ofOthers returns the finalizers that do not wait for the agent.
func ofOthers(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return strings.Contains(f, fleet.AgentFinalizers) })
}
