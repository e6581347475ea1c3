package manifest

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// LeaveToOthers returns the last manifest without the content that the required one does not name any more while others have it in the
// live object: Merge leaves that as it is. Of an object in which others have fields, all else that the last manifest named goes. isOthers
// reports whether others have anything at a field of the live object.
func LeaveToOthers(required, live, last *unstructured.Unstructured, isOthers func(Field) bool) *unstructured.Unstructured {
	l := leaver{merger: mergerFor(required, live), isOthers: isOthers}
	left := &unstructured.Unstructured{Object: maps.Clone(last.Object)}
	setContent(left, l.object(position{}, nil, l.content(required), contentOf(live), contentOf(last)))
	return left
}

// parts are the fields that the last manifest names of an object of which others have fields: it goes field by field, not as a whole.
type parts map[string]any

// leaver leaves content to others. It returns copies of what it changes.
type leaver struct {
	merger
	isOthers func(Field) bool
}

func (l leaver) object(at position, field Field, required, live, last map[string]any) map[string]any {
	left := maps.Clone(last)
	for name, before := range last {
		inside := field.inside(name)
		switch {
		case required[name] != nil || isSharedMap(name):
			left[name] = l.value(l.inside(at, name), inside, required[name], live[name], before)
		case !l.stays(at, name, inside, live[name], before): // it goes as a whole
		case l.isOthersInside(inside, live[name]):
			have, _ := live[name].(map[string]any)
			before, _ := before.(map[string]any)
			left[name] = parts(l.object(l.inside(at, name), inside, nil, have, before))
		default:
			delete(left, name)
		}
	}
	return left
}

// stays reports whether others keep a field that the manifest does not name any more, or fields in it. Of lists and of what is one value,
// they keep no part.
func (l leaver) stays(at position, name string, field Field, live, last any) bool {
	switch {
	case !l.isOthers(field):
		return false
	case last == nil || isSharedMap(name) || !l.isOthersInside(field, live):
		return true
	case l.isOneValue(at, name):
		return false
	}
	have, _ := live.(map[string]any)
	before, isObject := last.(map[string]any)
	for inside := range have {
		if isObject && l.stays(l.inside(at, name), inside, field.inside(inside), have[inside], before[inside]) {
			return true
		}
	}
	return false
}

// isOthersInside reports whether others have anything in a value, and not just the value itself.
func (l leaver) isOthersInside(field Field, value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for name := range value {
			if l.isOthers(field.inside(name)) {
				return true
			}
		}
	case []any:
		for i := range value {
			if l.isOthers(field.inside(i)) {
				return true
			}
		}
	}
	return false
}

func (l leaver) value(at position, field Field, required, live, last any) any {
	switch last := last.(type) {
	case map[string]any:
		required, _ := required.(map[string]any)
		live, _ := live.(map[string]any)
		return l.object(at, field, required, live, last)
	case []any:
		required, _ := required.([]any)
		live, _ := live.([]any)
		return l.list(at, field, required, live, last)
	default:
		return last
	}
}

// list goes into lists whose elements have names; others are one value.
func (l leaver) list(at position, field Field, required, live, last []any) []any {
	key := l.keyOf(at, required, live)
	if key == nil {
		return last
	}
	requiredAt, liveAt := key.index(required), key.index(live)
	left := make([]any, 0, len(last))
	for _, before := range last {
		have, isLive := liveAt[key.of(before)]
		want, isRequired := requiredAt[key.of(before)]
		switch {
		case isLive && isRequired:
			left = append(left, l.value(at, field.inside(have), required[want], live[have], before))
		case !isLive || !l.isOthers(field.inside(have)):
			left = append(left, before)
		}
	}
	return left
}
