package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1alpha1 "github.com/capstan-io/capstan/api/authentication/v1alpha1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	multiclusterv1alpha2 "github.com/capstan-io/capstan/api/multicluster/v1alpha2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
)

// hubTypes are the Go types of all kinds that a hub serves.
var hubTypes = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		addonv1alpha1.AddToScheme, addonv1beta1.AddToScheme,
		clusterv1.AddToScheme, clusterv1alpha1.AddToScheme, clusterv1beta1.AddToScheme, clusterv1beta2.AddToScheme,
		workv1.AddToScheme, workv1alpha1.AddToScheme,
		authenticationv1alpha1.AddToScheme, authenticationv1beta1.AddToScheme,
		multiclusterv1alpha1.AddToScheme, multiclusterv1alpha2.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
})

// ValidateReadable refuses what is created (old is nil) or updated if the schema of its CRD accepts it but its Go type cannot hold it:
// a quantity that is out of range, a date in lower case, a number beyond 32 bits. If one such object were stored, every client that
// lists its kind would fail again and again. For the subresource status it checks the status, otherwise everything except metadata and
// status. Parts that an update does not change are accepted, so that an old mistake blocks no other change. It fails with 400, naming
// the field. Quantities are bounded before anything is read, because a quantity of a few characters can take minutes to read.
func ValidateReadable(object, old *unstructured.Unstructured, subresource string) error {
	kind := object.GroupVersionKind()
	if !hubTypes().Recognizes(kind) {
		return nil
	}
	var errs field.ErrorList
	for _, name := range writtenFields(object, subresource) {
		part := object.Object[name]
		if old != nil && reflect.DeepEqual(part, old.Object[name]) {
			continue
		}
		path := field.NewPath(name)
		if refused := boundQuantities(path, part, fieldOf(kind, name)); len(refused) > 0 {
			errs = append(errs, refused...)
			continue
		}
		read := func(part any) error { return readInto(kind, map[string]any{name: part}) }
		if err := read(part); err != nil {
			errs = append(errs, smallestUnreadable(path, part, read))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return badRequest(kind.GroupKind(), object.GetName(), errs)
}

// writtenFields returns the top-level fields that a request can change.
func writtenFields(object *unstructured.Unstructured, subresource string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(object.Object)) {
		switch name {
		case "apiVersion", "kind", "metadata":
		case "status":
			if subresource == "status" {
				names = append(names, name)
			}
		default:
			if subresource == "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// readInto reads the content as clients do.
func readInto(kind schema.GroupVersionKind, content map[string]any) error {
	into, err := hubTypes().New(kind)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(encoded, into)
}

// smallestUnreadable returns the smallest part of a value that cannot be read even on its own.
func smallestUnreadable(path *field.Path, value any, read func(part any) error) *field.Error {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			alone := func(part any) error { return read(map[string]any{name: part}) }
			if alone(value[name]) != nil {
				return smallestUnreadable(child(path, name), value[name], alone)
			}
		}
	case []any:
		for i := range value {
			alone := func(part any) error { return read([]any{part}) }
			if alone(value[i]) != nil {
				return smallestUnreadable(path.Index(i), value[i], alone)
			}
		}
	}
	return field.Invalid(path, value, fmt.Sprintf("clients of the API could not read the value: %v", read(value)))
}

func child(path *field.Path, name string) *field.Path {
	if strings.ContainsAny(name, "./") {
		return path.Key(name)
	}
	return path.Child(name)
}
