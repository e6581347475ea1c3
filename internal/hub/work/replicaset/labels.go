package replicaset

import (
	"maps"
	"slices"
	"strings"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// labels are those that works have of the set, and those by which its works are found.
func (s *situation) labels(p *placement) map[string]string {
	return merged(s.labelsOfSet(), map[string]string{
		fleet.LabelManifestWorkReplicaSet: fleet.ManifestWorkReplicaSetKey(s.set.Namespace, s.set.Name),
		fleet.LabelPlacementName:          fleet.LabelValue(p.Name),
	})
}

// labelsOfSet are the labels of the set, without those that mean something to controllers: the hub writes to namespaces in which the
// author of the set may not, and with such a label could pass a work off as one of an add-on there.
func (s *situation) labelsOfSet() map[string]string {
	labels := maps.Clone(s.set.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return fleet.IsReservedLabel(key) })
	return labels
}

// label gives a work the labels. Those that it has of the set from earlier and that the set does not have any more go, those
// that somebody else gave it stay: an annotation says which are of the set.
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

// labelled tells whether label would change nothing.
func labelled(w *workv1.ManifestWork, labels, ofSet map[string]string) bool {
	for key, value := range labels {
		if have, ok := w.Labels[key]; !ok || have != value {
			return false
		}
	}
	// What the note names and the set has was looked at just now.
	return w.Annotations[fleet.AnnotationLabelsOfSet] == noteOf(ofSet)
}

const separator = ","

// noteOf is the value of the annotation: the keys of the labels that are of the set. They hold no commas.
func noteOf(ofSet map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(ofSet)), separator)
}

// merged is a with b over it.
func merged(a, b map[string]string) map[string]string {
	both := make(map[string]string, len(a)+len(b))
	maps.Copy(both, a)
	maps.Copy(both, b)
	return both
}
