package campaign

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// contents are the manifests that a version of a ManifestWork lists.
type contents struct {
	uid       types.UID
	version   string
	manifests []string
}

// noteManifests remembers which manifests a ManifestWork lists, and which ones it lists no more: its agent prunes their objects. Answers
// that come late are of versions before the one that is known.
func (h *history) noteManifests(o *unstructured.Unstructured) error {
	if o.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: workv1.GroupVersion.Group, Kind: "ManifestWork"}) {
		return nil
	}
	key := keyOf(schema.GroupResource{Group: workv1.GroupVersion.Group, Resource: "manifestworks"}, o.GetNamespace(), o.GetName())
	now := contents{uid: o.GetUID(), version: o.GetResourceVersion(), manifests: manifestsIn(o)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.works[key]; known.uid == now.uid {
		order, err := resourceversion.CompareResourceVersion(known.version, now.version)
		if err != nil || order > 0 {
			return err
		}
		for _, manifest := range known.manifests {
			if !slices.Contains(now.manifests, manifest) {
				h.dropped[h.step] = append(h.dropped[h.step], manifestKey(key, manifest))
			}
		}
	}
	h.works[key] = now
	return nil
}

// listed are the manifests that the works in a store list, by manifestKey.
func (h *history) listed(end store) store {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := store{}
	for key, work := range h.works {
		if _, there := end[key]; !there {
			continue
		}
		for _, manifest := range work.manifests {
			all[manifestKey(key, manifest)] = ""
		}
	}
	return all
}

func manifestKey(work, manifest string) string { return work + ": " + manifest }

// manifestsIn names the objects that a ManifestWork lists, whatever their versions are: agents apply an object in another version in place.
func manifestsIn(work *unstructured.Unstructured) (names []string) {
	manifests, _, _ := unstructured.NestedSlice(work.Object, "spec", "workload", "manifests")
	for _, manifest := range manifests {
		content, _ := manifest.(map[string]any)
		o := unstructured.Unstructured{Object: content}
		names = append(names, fmt.Sprintf("%s %s/%s", o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()))
	}
	return names
}
