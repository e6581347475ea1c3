package manifest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// WK-05: the lists of native kinds are matched by the keys that Kubernetes gives them in its schemas.
func TestListKeysAreThoseOfKubernetes(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for field, lists := range nativeLists(t) {
		known := listKeys[field]
		seen[field] = true
		for _, list := range lists {
			keys := strings.Join(list.Keys, " ")
			switch {
			case list.ElementRelationship != schema.Associative || len(list.Keys) == 0:
			case len(known) == 0:
				if !unkeyed.Has(field) {
					t.Errorf("the elements of %s have the key [%s] in a native kind, and none here", field, keys)
				}
			case !slices.ContainsFunc(known, func(key listKey) bool { return strings.Join(key, " ") == keys }):
				t.Errorf("the elements of %s have the key [%s] in a native kind, and %v here", field, keys, known)
			}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(listKeys)) {
		if !seen[field] || unkeyed.Has(field) {
			t.Errorf("no native kind has a list %s, or it is listed twice here", field)
		}
	}
}

// unkeyed are lists whose elements have keys in native kinds, and none here: only the manifest sets fields of these elements, so
// that it makes no difference.
var unkeyed = sets.New("claims", "compositePodGroupTemplates", "conditions", "drivers", "evictionResponders", "matchConditions",
	"podGroupTemplates",
	"schedulingGates", "variables")

// nativeLists are the lists in all native kinds, by the field that holds them.
func nativeLists(t *testing.T) map[string][]schema.List {
	t.Helper()
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	lists, visited := map[string][]schema.List{}, map[string]bool{}
	var all *schema.Schema
	var visit func(field string, ref schema.TypeRef)
	visit = func(field string, ref schema.TypeRef) {
		if ref.NamedType != nil {
			at := field + " " + *ref.NamedType
			if visited[at] {
				return
			}
			visited[at] = true
		}
		atom, found := all.Resolve(ref)
		if !found {
			t.Fatalf("the schema of %s is missing", field)
		}
		if atom.List != nil {
			lists[field] = append(lists[field], *atom.List)
			visit(field, atom.List.ElementType)
		}
		if atom.Map != nil {
			for _, f := range atom.Map.Fields {
				if f.Name != "status" && f.Name != "metadata" { // neither is merged so
					visit(f.Name, f.Type)
				}
			}
			if len(atom.Map.Fields) == 0 {
				visit(field, atom.Map.ElementType)
			}
		}
	}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if !nativeGroups.Has(gvk.Group) || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		object, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		object.GetObjectKind().SetGroupVersionKind(gvk)
		typed, err := converter.ObjectToTyped(object)
		if err != nil {
			continue // no kind of its own: a list, or options
		}
		all = typed.Schema()
		visit(gvk.Kind, typed.TypeRef())
	}
	if len(lists) < 100 {
		t.Fatalf("only %d lists are found", len(lists))
	}
	return lists
}

// WK-05: the fields of which the API server does not store zero are those that the types of Kubernetes omit then.
func TestOmittedWhenZero(t *testing.T) {
	t.Parallel()
	for field, omitted := range zeroOmitted() {
		if omitted && !omittedWhenZero.Has(field) && !defaulted.Has(field) {
			t.Errorf("%s of a native kind is not stored when it is false or 0, which is not known here", field)
		}
	}
}

// defaulted are fields that get another value when they are 0, and one that only the API server writes.
var defaulted = sets.New("deprecatedCount", "failureThreshold", "number", "successThreshold")

// zeroOmitted are the fields of native kinds that hold numbers and booleans. It says of each whether it is omitted when it is zero,
// wherever there is a field of that name.
func zeroOmitted() map[string]bool {
	omitted, visited := map[string]bool{}, map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of.Implements(reflect.TypeFor[json.Marshaler]()) || visited[of] {
			return
		}
		visited[of] = true
		for f := range of.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "metadata" || name == "status" {
				continue
			}
			scalar, pointer := f.Type, f.Type.Kind() == reflect.Pointer
			if pointer {
				scalar = f.Type.Elem()
			}
			switch scalar.Kind() {
			case reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
				before, found := omitted[name]
				omitted[name] = (before || !found) && !pointer && strings.Contains(options, "omit")
			default:
				visit(f.Type)
			}
		}
	}
	for gvk, of := range scheme.Scheme.AllKnownTypes() {
		if _, isObject := of.FieldByName("ObjectMeta"); isObject && nativeGroups.Has(gvk.Group) && gvk.Version != runtime.APIVersionInternal {
			visit(of)
		}
	}
	return omitted
}
