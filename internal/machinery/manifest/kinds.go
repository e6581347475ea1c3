package manifest

import (
	"encoding/base64"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// merger knows what is particular about the kind that is merged.
type merger struct {
	kind schema.GroupKind
	// native says that the kind is one of Kubernetes itself, so that it is known which empty values are not stored.
	native bool
	// filledByController says that a controller writes data next to that of the manifest.
	filledByController bool
	// injectsCABundle says that OpenShift writes the key ca-bundle.crt.
	injectsCABundle bool
}

var (
	configMapKind  = schema.GroupKind{Kind: "ConfigMap"}
	secretKind     = schema.GroupKind{Kind: "Secret"}
	podKind        = schema.GroupKind{Kind: "Pod"}
	accountKind    = schema.GroupKind{Kind: "ServiceAccount"}
	policyKind     = schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}
	definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

const rbacGroup = "rbac.authorization.k8s.io"

// nativeGroups are the API groups whose kinds are Go types of the API server.
var nativeGroups = sets.New("", "apps", "autoscaling", "batch", "policy", rbacGroup,
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "certificates.k8s.io",
	"coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io",
	"node.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io")

func mergerFor(required, live *unstructured.Unstructured) merger {
	kind := required.GroupVersionKind().GroupKind()
	m := merger{kind: kind, native: nativeGroups.Has(kind.Group)}
	switch kind {
	case secretKind:
		m.filledByController = live.Object["type"] == "kubernetes.io/service-account-token"
	case configMapKind:
		m.injectsCABundle = required.GetLabels()["config.openshift.io/inject-trusted-cabundle"] == "true"
	}
	return m
}

// content is what a manifest says apart from metadata and status, in the form in which the API server stores it.
func (m merger) content(manifest *unstructured.Unstructured) map[string]any {
	content := contentOf(manifest)
	switch m.kind {
	case secretKind:
		content["data"] = secretData(content)
		delete(content, "stringData")
	case configMapKind:
		// A ConfigMap without data says that there is none.
		if content["data"] == nil {
			content["data"] = map[string]any{}
		}
		if content["binaryData"] = stored(content["binaryData"]); content["binaryData"] == nil {
			content["binaryData"] = map[string]any{}
		}
	case schema.GroupKind{Group: rbacGroup, Kind: "ClusterRole"}:
		if content["aggregationRule"] != nil {
			delete(content, "rules") // The rules of an aggregated role are written by a controller.
		}
	}
	return content
}

// secretData is data with stringData on top, as the API server writes it.
func secretData(content map[string]any) any {
	data, ok := stored(content["data"]).(map[string]any)
	if !ok {
		if content["data"] != nil {
			return content["data"]
		}
		data = map[string]any{}
	}
	texts, _ := content["stringData"].(map[string]any)
	for key, text := range texts {
		if text, ok := text.(string); ok {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	return data
}

// stored gives base64 values the form in which the API server stores them: without line breaks.
func stored(data any) any {
	values, ok := data.(map[string]any)
	if !ok {
		return data
	}
	values = maps.Clone(values)
	for key, value := range values {
		text, _ := value.(string)
		if decoded, err := base64.StdEncoding.DecodeString(text); err == nil && text != "" {
			values[key] = base64.StdEncoding.EncodeToString(decoded)
		}
	}
	return values
}

// inside is the position of a field of an object.
func (m merger) inside(at position, field string) position {
	exact := at.exact || m.isExact(field)
	return position{field: field, exact: exact, quantity: !exact && (at.quantity || m.isQuantity(field))}
}

// selectors have no defaults, and one key more or less selects something else.
var selectors = sets.New("labelSelector", "matchLabels", "namespaceSelector", "nodeSelector", "objectSelector",
	"podSelector", "selector")

// isExact says of which fields the manifest is the only owner.
func (m merger) isExact(field string) bool {
	switch {
	case m.kind == configMapKind:
		return field == "data" || field == "binaryData"
	case m.kind == secretKind:
		return field == "data" && !m.filledByController
	case m.kind.Group == rbacGroup:
		return field == "rules" || field == "aggregationRule"
	case m.kind == definitionKind:
		return field == "schema"
	case m.kind == policyKind && (field == "ingress" || field == "egress"):
		return true
	}
	return m.native && m.kind != podKind && selectors.Has(field)
}

// isDefault says whether a field that the manifest does not name was put there by others, where the manifest is the
// only owner otherwise.
func (m merger) isDefault(field string, have any) bool {
	return m.kind == policyKind && field == "protocol" && have == "TCP" ||
		m.injectsCABundle && field == "ca-bundle.crt"
}

// isShared says in which lists others add elements that have to stay: those of a Pod, which admission adds and no client
// may remove, and the secrets of a ServiceAccount.
func (m merger) isShared(at position) bool {
	return m.kind == podKind || m.kind == accountKind && (at.field == "secrets" || at.field == "imagePullSecrets")
}

// isQuantity says below which fields scalars are resource quantities.
func (m merger) isQuantity(field string) bool {
	switch field {
	case "limits", "requests", "hard", "capacity", "overhead":
		return true
	case "sizeLimit", "divisor", "averageValue":
		return m.native
	case "tolerance", "value":
		return m.kind.Group == "autoscaling"
	case "default", "defaultRequest", "max", "min", "maxLimitRequestRatio":
		return m.kind == schema.GroupKind{Kind: "LimitRange"}
	default:
		return false
	}
}
