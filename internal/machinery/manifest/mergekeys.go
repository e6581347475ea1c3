package manifest

import (
	"fmt"
	"strings"
)

// listKey is the fields whose values name an element of a list.
type listKey []string

// listKeys are the lists of native kinds whose elements have names, by the field that holds the list. Where there are several keys, the
// first one that all elements of both lists have, each its own, is taken. What a field of the same name holds in a custom resource is
// not known: there, a list is one value.
var listKeys = map[string][]listKey{
	"containers":                {{"name"}},
	"env":                       {{"name"}},
	"ephemeralContainers":       {{"name"}},
	"hostAliases":               {{"ip"}},
	"imagePullSecrets":          {{"name"}},
	"initContainers":            {{"name"}},
	"ports":                     {{"name"}, {"containerPort", "protocol"}, {"port", "protocol"}},
	"resourceClaims":            {{"name"}},
	"secrets":                   {{"name"}},
	"topologySpreadConstraints": {{"topologyKey", "whenUnsatisfiable"}},
	"versions":                  {{"name"}},
	"volumeDevices":             {{"devicePath"}},
	"volumeMounts":              {{"mountPath"}},
	"volumes":                   {{"name"}},
	"webhooks":                  {{"name"}},
}

// keyOf returns the key to match the elements of both lists by, nil when they have to be compared by position.
func (m merger) keyOf(at position, required, live []any) listKey {
	if len(required) == 0 && !m.isShared(at) {
		return nil
	}
	for _, key := range m.listKeys(at) {
		if key.isUnique(required) && key.isUnique(live) {
			return key
		}
	}
	return nil
}

// listKeys are the keys by which the elements of a list may be matched.
func (m merger) listKeys(at position) []listKey {
	if !m.native {
		return nil
	}
	return listKeys[at.field]
}

// of returns the name of an element, empty when it has none.
func (key listKey) of(element any) string {
	object, ok := element.(map[string]any)
	if !ok {
		return ""
	}
	parts := make([]string, len(key))
	for i, field := range key {
		value := object[field]
		if value == nil && field == "protocol" {
			value = "TCP"
		}
		if value == nil || value == "" {
			return ""
		}
		parts[i] = fmt.Sprint(value)
	}
	return strings.Join(parts, "\x00")
}

func (key listKey) isUnique(list []any) bool {
	names := key.index(list)
	_, nameless := names[""]
	return len(names) == len(list) && !nameless
}

// index maps the names of the elements to their positions.
func (key listKey) index(list []any) map[string]int {
	names := make(map[string]int, len(list))
	for i, element := range list {
		names[key.of(element)] = i
	}
	return names
}
