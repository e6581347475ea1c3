// Package values collects the values with which the manifests of an add-on are rendered on one cluster: from the annotation of the
// ManagedClusterAddOn, from its AddOnDeploymentConfig, or from any other source. Packages addon/chart and addon/manifests take them.
package values

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/capstan-io/capstan/addon"
)

// Annotation is the annotation of a ManagedClusterAddOn with values as a JSON object.
const Annotation = "addon.open-cluster-management.io/values"

// Values are values by their names. Those that are Values themselves, or map[string]any, are nested.
type Values = map[string]any

// Source returns values for an add-on on a cluster; nil if it has none.
type Source func(ctx context.Context, installation addon.Installation) (Values, error)

// Collect merges the values of all sources: later ones override earlier ones. It fails if a source does.
func Collect(ctx context.Context, installation addon.Installation, sources ...Source) (Values, error) {
	collected := Values{}
	for _, source := range sources {
		found, err := source(ctx, installation)
		if err != nil {
			return nil, err
		}
		collected = Merge(collected, found)
	}
	return collected, nil
}

// Merge returns base, overridden by override. Objects in both are merged recursively; anything else, lists included, is replaced as a
// whole. Neither argument is changed.
func Merge(base, override Values) Values {
	merged := maps.Clone(base)
	if merged == nil {
		merged = Values{}
	}
	for name, value := range override {
		inner, isObject := value.(Values)
		before, wasObject := merged[name].(Values)
		switch {
		case isObject && wasObject:
			merged[name] = Merge(before, inner)
		case isObject:
			merged[name] = Merge(nil, inner)
		default:
			merged[name] = value
		}
	}
	return merged
}

// FromAnnotation is the Source of the values in the annotation of the ManagedClusterAddOn.
func FromAnnotation(_ context.Context, installation addon.Installation) (Values, error) {
	text, found := installation.AddOn.Annotations[Annotation]
	if !found || text == "" {
		return nil, nil
	}
	var values Values
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, fmt.Errorf(`the annotation %s of ManagedClusterAddOn %s/%s is no JSON object, such as {"replicas":2}: %w`,
			Annotation, installation.AddOn.Namespace, installation.AddOn.Name, err)
	}
	return values, nil
}

// Of returns the fields of a struct as values, named as in its JSON.
func Of(object any) (Values, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("make values of %T: %w", object, err)
	}
	var result Values
	if err := json.Unmarshal(text, &result); err != nil {
		return nil, fmt.Errorf("make values of %T: it is no object in JSON: %w", object, err)
	}
	return result, nil
}
