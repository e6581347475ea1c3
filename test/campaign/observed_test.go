package campaign

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// observer is a part of an object that says which generation of the object somebody has observed: the status, or a condition.
type observer struct {
	uid  types.UID
	part string
}

// observation is the generation that was observed, as a version of the object says.
type observation struct {
	version    string
	generation int64
}

// checkObserved fails if a later version of an object says that an earlier generation was observed. Answers come in another order than the
// versions if several writers write at once.
func (h *history) checkObserved(o *unstructured.Unstructured) error {
	for part, generation := range observedIn(o) {
		from, to, err := h.observe(observer{o.GetUID(), part}, observation{o.GetResourceVersion(), generation})
		if err == nil && from.generation > to.generation {
			err = fmt.Errorf("the observedGeneration of %s goes back from %d to %d", part, from.generation, to.generation)
		}
		if err != nil {
			return fmt.Errorf("%s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

// observe remembers an observation if its version is the latest one, and returns it and the one that is known besides, the earlier one
// first.
func (h *history) observe(by observer, now observation) (from, to observation, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, found := h.observed[by]
	if !found {
		h.observed[by] = now
		return now, now, nil
	}
	order, err := resourceversion.CompareResourceVersion(known.version, now.version)
	if err != nil || order > 0 {
		return now, known, err
	}
	h.observed[by] = now
	return known, now, nil
}

// observedIn are the observed generations in the status of an object, by the part that has them.
func observedIn(o *unstructured.Unstructured) map[string]int64 {
	observed := map[string]int64{}
	if generation, found, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); found {
		observed["the status"] = generation
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if generation, found := condition["observedGeneration"].(int64); found {
			observed[fmt.Sprintf("condition %v", condition["type"])] = generation
		}
	}
	return observed
}
