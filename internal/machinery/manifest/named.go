package manifest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// maxNamedFields is how many bytes NamedFields returns at most of the metadata, and of all else. An object has room for 256 KiB of
// annotations in all.
const maxNamedFields = 16 << 10

// maxDepth is deeper than manifests are.
const maxDepth = 64

// NamedFields writes down which fields a manifest names, and not what it says in them, apart from the names of list elements, finalizers
// and the UIDs of owners. It is empty if a later manifest could name no less in any way that matters to Merge. Of a manifest with more
// fields than there is room for, only the upper levels are written down, and no labels and annotations if it is those that are too many.
//
// Kept with the object, it makes a field go that was taken out of the manifest while the agent did not run:
// LastNamed turns it into what Merge takes for the last manifest.
func NamedFields(object *unstructured.Unstructured) string {
	m := mergerFor(object, object)
	content := m.content(object)
	switch m.kind {
	case configMapKind, secretKind:
		delete(content, "data")       // the manifest is its only owner, and an absent one is an empty one
		delete(content, "binaryData") // the same
		delete(content, "type")       // cannot change
	}
	named := m.namedWithin(content, maxNamedFields)
	if metadata := namedMetadata(object, maxNamedFields); len(metadata) > 0 {
		named["metadata"] = metadata
	}
	if len(named) == 0 {
		return ""
	}
	return string(encode(named))
}

// namedWithin names as many levels of the content as there is room for.
func (m merger) namedWithin(content map[string]any, room int) map[string]any {
	for depth := maxDepth; depth > 0; depth-- {
		named := m.namedIn(position{}, content, depth)
		if len(encode(named)) <= room {
			return named
		}
		depth = min(depth, depthOf(named))
	}
	return map[string]any{}
}

// namedMetadata names the keys of the metadata, without labels and annotations if they are too many.
func namedMetadata(object *unstructured.Unstructured, room int) map[string]any {
	metadata := metadataOf(KeysOf(object))
	if len(encode(metadata)) > room {
		delete(metadata, Labels)
		delete(metadata, Annotations)
	}
	return metadata
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // What was decoded from JSON can be encoded as JSON.
	}
	return text
}

// LastNamed stands for a manifest that named the fields. It is nil if the text is not one that NamedFields wrote.
func LastNamed(fields string) *unstructured.Unstructured {
	last := &unstructured.Unstructured{}
	if fields == "" || json.Unmarshal([]byte(fields), &last.Object) != nil || last.Object == nil {
		return nil
	}
	return last
}

// Names reports whether a manifest names a field of the live object, or anything in it. Of what is one value, and of a list whose elements
// have no names, it names no part.
func Names(named, live *unstructured.Unstructured, field Field) bool {
	m := mergerFor(named, live)
	return m.names(position{}, contentOf(named), contentOf(live), field)
}

func (m merger) names(at position, named, live any, field Field) bool {
	if len(field) == 0 {
		return named != nil
	}
	switch step := field[0].(type) {
	case string:
		named, _ := named.(map[string]any)
		live, _ := live.(map[string]any)
		return m.names(m.inside(at, step), named[step], live[step], field[1:])
	case int:
		named, _ := named.([]any)
		live, _ := live.([]any)
		key := m.keyOf(at, named, live)
		if key == nil || step >= len(live) {
			return false
		}
		i, found := key.index(named)[key.of(live[step])]
		return found && m.names(at, named[i], live[step], field[1:])
	default:
		return false
	}
}

func (m merger) namedIn(at position, object map[string]any, depth int) map[string]any {
	named := map[string]any{}
	for field, value := range object {
		if value != nil && !m.isNotStored(at, field, value) {
			named[field] = m.named(m.inside(at, field), value, depth-1)
		}
	}
	return named
}

func (m merger) named(at position, value any, depth int) any {
	if depth == 0 || at.exact {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		return m.namedIn(at, value, depth)
	case []any:
		if !areObjects(value) {
			return []any{true}
		}
		elements := make([]any, len(value))
		for i, element := range value {
			elements[i] = m.namedElement(at, element.(map[string]any), depth-1) // areObjects made sure
		}
		return elements
	default:
		return true
	}
}

// namedElement keeps what the element is found by.
func (m merger) namedElement(at position, element map[string]any, depth int) any {
	named := map[string]any{}
	if depth > 0 {
		named = m.namedIn(at, element, depth)
	}
	for _, key := range m.listKeys(at) {
		for _, field := range key {
			if value := element[field]; value != nil {
				named[field] = value
			}
		}
	}
	return named
}

func depthOf(value any) int {
	deepest := 0
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			deepest = max(deepest, depthOf(v))
		}
	case []any:
		for _, v := range value {
			deepest = max(deepest, depthOf(v))
		}
	default:
		return 0
	}
	return deepest + 1
}
