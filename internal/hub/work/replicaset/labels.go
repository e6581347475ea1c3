package replicaset

import (
	"maps"
	"slices"
	"strings"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// labels returns the labels that identify the works of a placement, and those that the set copies to its works.
func (s *snapshot) labels(p *placement) map[string]string {
	return merged(s.labelsOfSet(), map[string]string{
		fleet.LabelManifestWorkReplicaSet: fleet.ManifestWorkReplicaSetKey(s.set.Namespace, s.set.Name),
		fleet.LabelPlacementName:          fleet.LabelValue(p.Name),
	})
}

// labelsOfSet returns the labels of the set, without those that have a meaning for controllers: the hub writes to namespaces in which
// the author of the set may not, where such a label could make a work look like one of an add-on.
func (s *snapshot) labelsOfSet() map[string]string {
	labels := maps.Clone(s.set.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return fleet.IsReservedLabel(key) })
	return labels
}

// label sets the labels of a work. It removes labels that the set no longer has, and keeps those of other writers: an annotation lists
// which labels are from the set.
func label(w *workv1.ManifestWork, labels, ofSet map[string]string) {
	all := maps.Clone(w.Labels)
	for key := range strings.SplitSeq(w.Annotations[fleet.AnnotationLabelsOfSet], separator) {
		delete(all, key)
	}
	w.Labels = merged(all, labels)
	if note := noteOf(ofSet); note != "" {
		w.Annotations = merged(w.Annotations, map[string]string{fleet.AnnotationLabelsOfSet: note})
	} else {
		delete(w.Annotations, fleet.AnnotationLabelsOfSet)
	}
}

// labelled reports whether label would change nothing.
func labelled(w *workv1.ManifestWork, labels, ofSet map[string]string) bool {
	for key, value := range labels {
		if have, ok := w.Labels[key]; !ok || have != value {
			return false
		}
	}
	// The labels that are in the annotation and in the set were compared above.
	return w.Annotations[fleet.AnnotationLabelsOfSet] == noteOf(ofSet)
}

const separator = ","

// noteOf returns the value of the annotation: the keys of the labels from the set. Keys contain no commas.
func noteOf(ofSet map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(ofSet)), separator)
}

// merged returns a map with the entries of a, overridden by those of b.
func merged(a, b map[string]string) map[string]string {
	both := make(map[string]string, len(a)+len(b))
	maps.Copy(both, a)
	maps.Copy(both, b)
	return both
}
