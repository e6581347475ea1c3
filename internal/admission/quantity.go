package admission

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// fieldOf returns the type of a top-level field of a kind, or nil.
func fieldOf(kind schema.GroupVersionKind, name string) reflect.Type {
	into := hubTypes().AllKnownTypes()[kind]
	for i := range into.NumField() {
		if jsonName(into.Field(i)) == name {
			return into.Field(i).Type
		}
	}
	return nil
}

// boundQuantities refuses quantities in a value that would take too long to read into the type, such as 1e-300000000, whose exponent is
// expanded. It checks their texts before they are read.
func boundQuantities(path *field.Path, value any, into reflect.Type) field.ErrorList {
	if into == nil {
		return nil
	}
	if into == reflect.TypeFor[resource.Quantity]() {
		return boundQuantity(path, value)
	}
	var errs field.ErrorList
	switch into.Kind() {
	case reflect.Pointer:
		return boundQuantities(path, value, into.Elem())
	case reflect.Struct:
		members, _ := value.(map[string]any)
		for i := range into.NumField() {
			member := into.Field(i)
			name := jsonName(member)
			if name == "" && member.Anonymous {
				errs = append(errs, boundQuantities(path, value, member.Type)...)
			} else if given, found := members[name]; found {
				errs = append(errs, boundQuantities(path.Child(name), given, member.Type)...)
			}
		}
	case reflect.Map:
		members, _ := value.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			errs = append(errs, boundQuantities(child(path, name), members[name], into.Elem())...)
		}
	case reflect.Slice:
		items, _ := value.([]any)
		for i := range items {
			errs = append(errs, boundQuantities(path.Index(i), items[i], into.Elem())...)
		}
	}
	return errs
}

func boundQuantity(path *field.Path, value any) field.ErrorList {
	quantity, ok := value.(string)
	if !ok {
		return nil // A number has been read already.
	}
	if err := budget.Quantity(quantity); err != nil {
		return field.ErrorList{field.Invalid(path, text.Message(quantity), err.Error())}
	}
	return nil
}

func jsonName(member reflect.StructField) string {
	name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
	return name
}
