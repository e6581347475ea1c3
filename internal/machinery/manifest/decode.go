package manifest

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Manifest is one entry of a ManifestWork's spec.workload.manifests.
type Manifest struct {
	// Ordinal is the index of the entry in the spec.
	Ordinal int
	// Object is the entry, decoded. It is nil when Err is set.
	Object *unstructured.Unstructured
	// Err says why the entry cannot be applied on any cluster; it names the ordinal and, as far as known, the kind and name.
	Err error
}

// Identity is which object a manifest is about.
type Identity struct {
	schema.GroupVersionKind
	// Namespace is empty for cluster-scoped objects.
	Namespace string
	Name      string
}

// Identify says which object this is.
func Identify(object *unstructured.Unstructured) Identity {
	return Identity{
		GroupVersionKind: object.GroupVersionKind(),
		Namespace:        object.GetNamespace(),
		Name:             object.GetName(),
	}
}

// String writes the identity for messages, such as `apps/v1 Deployment default/nginx`.
func (id Identity) String() string {
	name := id.Name
	if id.Namespace != "" {
		name = id.Namespace + "/" + id.Name
	}
	return fmt.Sprintf("%s %s %s", id.GroupVersion(), id.Kind, name)
}

// Decode reads the manifests of a ManifestWork in the order of the spec. It returns one entry for each, readable or not.
// Metadata that only an API server can give (uid, resourceVersion and so on) is dropped.
func Decode(manifests []workv1.Manifest) []Manifest {
	decoded := make([]Manifest, len(manifests))
	for i := range manifests {
		decoded[i].Ordinal = i
		decoded[i].Object, decoded[i].Err = decode(i, manifests[i].Raw)
	}
	return decoded
}

func decode(ordinal int, raw []byte) (*unstructured.Unstructured, error) {
	if len(raw) == 0 {
		return nil, fmt.Errorf("manifest %d is empty", ordinal)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &object.Object); err != nil {
		return nil, fmt.Errorf("manifest %d is not a Kubernetes object: %w", ordinal, err)
	}
	if err := Clean(object); err != nil {
		return nil, fmt.Errorf("manifest %d%s: %w", ordinal, describe(object), err)
	}
	return object, nil
}

// Clean makes a manifest of an object that came from anywhere: it drops the metadata that only an API server can give, and what
// DropExported drops.
// It fails if that cannot be applied on any cluster, and says which field is wrong.
func Clean(object *unstructured.Unstructured) error {
	if err := check(object); err != nil {
		return err
	}
	DropExported(object)
	dropServerMetadata(object)
	return nil
}

// check makes sure that the accessors of unstructured objects can be used on this one.
func check(object *unstructured.Unstructured) error {
	metadata, found, err := unstructured.NestedMap(object.Object, "metadata")
	switch {
	case !isText(object.Object["apiVersion"]):
		return errors.New("apiVersion is missing: write the group and version of the object, such as apps/v1")
	case !isText(object.Object["kind"]):
		return errors.New("kind is missing: write the kind of the object, such as Deployment")
	case err != nil || !found:
		return errors.New("metadata is missing or no object: write at least metadata.name")
	case !isText(metadata["name"]):
		return errors.New("metadata.name is missing")
	}
	apiVersion := object.GetAPIVersion()
	if parsed, err := schema.ParseGroupVersion(apiVersion); err != nil || parsed.String() != apiVersion || parsed.Version == "" {
		return fmt.Errorf("apiVersion %q is not of the form group/version, such as apps/v1", apiVersion)
	}
	if namespace := metadata["namespace"]; namespace != nil && namespace != "" && !isText(namespace) {
		return errors.New("metadata.namespace is no text")
	}
	for _, name := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(object.Object, "metadata", name); err != nil && metadata[name] != nil {
			return fmt.Errorf("metadata.%s must hold texts only: put numbers and booleans in quotes", name)
		}
	}
	return nil
}

func isText(value any) bool {
	text, ok := value.(string)
	return ok && text != ""
}

// describe says what is known of an object that cannot be used.
func describe(object *unstructured.Unstructured) string {
	kind, _, _ := unstructured.NestedString(object.Object, "kind")
	name, _, _ := unstructured.NestedString(object.Object, "metadata", "name")
	switch {
	case kind != "" && name != "":
		return fmt.Sprintf(" (%s %q)", kind, name)
	case kind != "":
		return fmt.Sprintf(" (%s)", kind)
	case name != "":
		return fmt.Sprintf(" (%q)", name)
	default:
		return ""
	}
}

// dropServerMetadata removes what a manifest that was exported from a cluster carries of that cluster.
func dropServerMetadata(object *unstructured.Unstructured) {
	metadata := object.Object["metadata"].(map[string]any) // check made sure
	for _, name := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "managedFields", "selfLink",
	} {
		delete(metadata, name)
	}
}
