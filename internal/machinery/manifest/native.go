package manifest

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// meaningfulWhenEmpty are fields of native kinds where an empty object says something else than none.
var meaningfulWhenEmpty = sets.New("all", "basic", "emptyDir", "exempt", "single", "status").Union(selectors).
	Delete("matchLabels", "nodeSelector")

// textMaps are fields of native kinds that hold free keys, where an empty text is a value.
var textMaps = sets.New("annotations", "data", "labels", "matchLabels", "nodeSelector", "options", "parameters", "selector",
	"volumeAttributes")

// omittedWhenZero are fields of native kinds that are not stored when they are false or 0.
var omittedWhenZero = sets.New("chapAuthDiscovery", "chapAuthSession", "clusterScope", "deprecated", "exclusiveMaximum", "exclusiveMinimum",
	"globalDefault", "healthCheckNodePort", "hostIPC", "hostNetwork", "hostPID", "hostPort", "initialDelaySeconds",
	"insecureSkipTLSVerify", "minReadySeconds", "nodePort", "nullable", "paused", "preserveUnknownFields", "priority",
	"publishNotReadyAddresses", "readOnly", "sslEnabled", "stdin", "stdinOnce", "tty", "uniqueItems", "unschedulable",
	"x-kubernetes-embedded-resource", "x-kubernetes-int-or-string")

// isNotStored says whether the API server would drop the value of a field that the live object does not have. It is
// only known of native kinds; custom resources are stored as they are written.
func (m merger) isNotStored(at position, field string, want any) bool {
	if !m.native {
		return false
	}
	switch want := want.(type) {
	case nil:
		return true
	case []any:
		return len(want) == 0
	case map[string]any:
		return !at.exact && !meaningfulWhenEmpty.Has(field) && m.nothingStored(want, field) ||
			field == "matchLabels" && len(want) == 0
	case string:
		if at.exact {
			return want == "" && m.kind == definitionKind && field != "default"
		}
		return want == "" && !textMaps.Has(at.field)
	case bool:
		return !want && omittedWhenZero.Has(field)
	default:
		zero, isNumber := number(want)
		return isNumber && zero == 0 && omittedWhenZero.Has(field)
	}
}

// nothingStored says whether an object is empty once it is stored.
func (m merger) nothingStored(object map[string]any, name string) bool {
	for field, value := range object {
		if value != nil && !m.isNotStored(position{field: name}, field, value) {
			return false
		}
	}
	return true
}

// isServerAssigned says whether a manifest only seems to name a value that the API server assigns.
func (m merger) isServerAssigned(field string, want any) bool {
	if !m.native {
		return false
	}
	switch field {
	case "clusterIP":
		return want == ""
	case "nodePort", "healthCheckNodePort":
		zero, isNumber := number(want)
		return isNumber && zero == 0
	default:
		return false
	}
}

// discriminators name, by field of a native kind, what distinguishes one kind of value from another; the rest of the value
// belongs to that kind and cannot stay when it changes.
var discriminators = map[string]string{
	"appArmorProfile": "type",
	"conversion":      "strategy",
	"limitResponse":   "type",
	"seccompProfile":  "type",
	"strategy":        "type",
	"updateStrategy":  "type",
}

// anotherKind says whether the manifest wants another kind of value than the live one, such as another update strategy.
func (m merger) anotherKind(at position, required, live map[string]any) bool {
	field, found := discriminators[at.field]
	if !found || !m.native {
		return false
	}
	want, ok := required[field].(string)
	return ok && want != live[field]
}

// alternatives are fields of native kinds of which an object has one at most.
var alternatives = []sets.Set[string]{
	sets.New("exec", "grpc", "httpGet", "sleep", "tcpSocket"),
	sets.New("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"),
	sets.New("value", "valueFrom"),
	sets.New("maxUnavailable", "minAvailable"),
	sets.New("service", "url"),
	sets.New("resource", "service"),
	sets.New("name", "number"),
}

// excludes reports whether a live field cannot stay together with what the manifest names.
func (m merger) excludes(at position, required map[string]any, field string) bool {
	if !m.native {
		return false
	}
	if at.field == "volumes" {
		return namesOther(required, "name")
	}
	for _, group := range alternatives {
		if !group.Has(field) {
			continue
		}
		for other := range group {
			if required[other] != nil {
				return true
			}
		}
	}
	return false
}

// isOneValue reports whether no part of a field can stay without the rest, which would be of another kind, or mean something else.
func (m merger) isOneValue(at position, field string) bool {
	if m.inside(at, field).exact {
		return true
	}
	_, isOfAKind := discriminators[field]
	isAlternative := slices.ContainsFunc(alternatives, func(group sets.Set[string]) bool { return group.Has(field) })
	return m.native && (isOfAKind || isAlternative || at.field == "volumes")
}

// namesOther reports whether an object has another field than this one.
func namesOther(object map[string]any, field string) bool {
	for name, value := range object {
		if name != field && value != nil {
			return true
		}
	}
	return false
}
