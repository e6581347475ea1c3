package manifest

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// position is where in an object a value is, as far as that matters to how it is merged.
type position struct {
	// field is the name of the nearest field around the value; elements of a list are at the field of the list.
	field string
	// exact says that the manifest is the only owner here: what it does not name is removed.
	exact bool
	// quantity says that scalars are resource quantities.
	quantity bool
}

// value merges one value and returns what is to be there. required is never nil; live and last are nil when there is none.
func (m merger) value(at position, required, live, last any) (merged any, changed bool) {
	switch required := required.(type) {
	case map[string]any:
		if live, ok := live.(map[string]any); ok && !m.anotherKind(at, required, live) {
			last, _ := last.(map[string]any)
			changed = m.object(at, required, live, last)
			return live, changed
		}
	case []any:
		if live, ok := live.([]any); ok {
			last, _ := last.([]any)
			return m.list(at, required, live, last)
		}
	default:
		if sameScalar(at, required, live) {
			return live, false
		}
	}
	return runtime.DeepCopyJSONValue(required), true
}

// object makes the live object what the required one says, in place.
func (m merger) object(at position, required, live, last map[string]any) (changed bool) {
	for field, want := range required {
		if want == nil || m.isServerAssigned(field, want) {
			continue
		}
		have := live[field]
		if have == nil && m.isNotStored(at, field, want) {
			continue
		}
		merged, fieldChanged := m.value(m.inside(at, field), want, have, last[field])
		if fieldChanged {
			live[field] = merged
			changed = true
		}
	}
	for field, have := range live {
		if required[field] != nil || have == nil {
			continue
		}
		if inside, ok := have.(map[string]any); ok && goesInParts(at, field, last[field]) {
			changed = m.object(m.inside(at, field), nil, inside, partsOf(last[field])) || changed
			continue
		}
		if m.isUnwanted(at, field, have, required, last) {
			delete(live, field)
			changed = true
		}
	}
	return changed
}

// isUnwanted says whether a field that the manifest does not name has to go.
func (m merger) isUnwanted(at position, field string, have any, required, last map[string]any) bool {
	return last[field] != nil && !m.isNotStored(at, field, last[field]) ||
		at.exact && !m.isDefault(field, have) ||
		m.excludes(at, required, field)
}

// goesInParts reports whether an object that the manifest does not name loses no more than what the last one named in it.
func goesInParts(at position, field string, last any) bool {
	_, isParts := last.(parts)
	return isParts || isSharedMap(field) && !at.exact
}

func partsOf(last any) map[string]any {
	if last, ok := last.(parts); ok {
		return last
	}
	fields, _ := last.(map[string]any)
	return fields
}

// isSharedMap says in which objects everybody has keys of their own, so that they never go as a whole: the metadata of
// templates, mostly.
func isSharedMap(field string) bool {
	return field == "metadata" || field == "labels" || field == "annotations"
}

// list returns the live list when it is what the required one says, otherwise what is to take its place.
func (m merger) list(at position, required, live, last []any) (merged []any, changed bool) {
	if key := m.keyOf(at, required, live); key != nil {
		if m.isShared(at) {
			return m.sharedList(at, key, required, live, last)
		}
		return m.keyedList(at, key, required, live, last)
	}
	if m.isShared(at) && areObjects(required) &&
		containsAll(required, live, func(want, have any) bool { return m.isMet(at, want, have, nil) }) {
		return live, false
	}
	if len(required) == len(live) && m.allMet(at, required, live, last) {
		return live, false
	}
	return runtime.DeepCopyJSONValue(required).([]any), true // A copy has the type of its source.
}

// keyedList takes the elements of the manifest in its order; each keeps what the manifest does not name.
func (m merger) keyedList(at position, key listKey, required, live, last []any) (merged []any, changed bool) {
	liveAt, lastAt := key.index(live), key.index(last)
	changed = len(required) != len(live)
	merged = make([]any, 0, len(required))
	for i, want := range required {
		id := key.of(want)
		have, found := liveAt[id]
		if !found {
			merged, changed = append(merged, runtime.DeepCopyJSONValue(want)), true
			continue
		}
		element, elementChanged := m.value(at, want, live[have], elementAt(last, lastAt, id))
		merged = append(merged, element)
		changed = changed || elementChanged || have != i
	}
	return merged, changed
}

// sharedList keeps the elements others added, in their order, unless the manifest named them before.
func (m merger) sharedList(at position, key listKey, required, live, last []any) (merged []any, changed bool) {
	requiredAt, liveAt, lastAt := key.index(required), key.index(live), key.index(last)
	for _, have := range live {
		id := key.of(have)
		want, found := requiredAt[id]
		if !found {
			if _, ours := lastAt[id]; ours {
				changed = true
				continue
			}
			merged = append(merged, have)
			continue
		}
		element, elementChanged := m.value(at, required[want], have, elementAt(last, lastAt, id))
		merged = append(merged, element)
		changed = changed || elementChanged
	}
	for _, want := range required {
		if _, found := liveAt[key.of(want)]; !found {
			merged, changed = append(merged, runtime.DeepCopyJSONValue(want)), true
		}
	}
	return merged, changed
}

func elementAt(list []any, index map[string]int, id string) any {
	if i, found := index[id]; found {
		return list[i]
	}
	return nil
}

// allMet says whether every live element is what the required one at its index says.
func (m merger) allMet(at position, required, live, last []any) bool {
	for i, want := range required {
		var before any
		if len(last) == len(required) {
			before = last[i]
		}
		if !m.isMet(at, want, live[i], before) {
			return false
		}
	}
	return true
}

// isMet says whether a live value is what the manifest says. It works on a copy, as merging would change the value.
func (m merger) isMet(at position, want, have, before any) bool {
	if want == nil || have == nil {
		return want == nil && have == nil
	}
	_, changed := m.value(at, want, runtime.DeepCopyJSONValue(have), before)
	return !changed
}

func areObjects(list []any) bool {
	for _, element := range list {
		if _, ok := element.(map[string]any); !ok {
			return false
		}
	}
	return true
}

// containsAll says whether every required element is met by a live element of its own.
func containsAll(required, live []any, met func(want, have any) bool) bool {
	taken := make([]bool, len(live))
	for _, want := range required {
		found := false
		for i, have := range live {
			if !taken[i] && met(want, have) {
				taken[i], found = true, true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}
