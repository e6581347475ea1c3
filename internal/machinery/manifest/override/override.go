// Package override makes the manifests of one template differ from cluster to cluster: it sets fields to values of
// the cluster, and patches. It is pure, and no text is pasted into other text: a value is a JSON value of a type that is
// known, so whatever a label holds, it stays one.
//
// Overrides are written as YAML, in the annotation capstan.io/overrides of a ManifestWorkReplicaSet.
package override

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

// Bounds of the overrides of a set. The steps are those for one cluster. Each change of a manifest is one, and there are more for long
// paths and values, and where a change has many elements of a list or members of an object copied or moved. One takes some microseconds at
// most.
const (
	mostChanges = 1000
	mostSteps   = 20_000
)

// Override changes some manifests on some clusters: first it sets fields, then it patches.
type Override struct {
	// Manifest says which manifests are changed. Fields that are left out match all.
	Manifest Manifest `json:"manifest,omitempty"`
	// Clusters says for which clusters. Left out, for all.
	Clusters *Clusters `json:"clusters,omitempty"`
	// Set sets fields to values of the cluster.
	Set []Assignment `json:"set,omitempty"`
	// MergePatch is a JSON merge patch (RFC 7386).
	MergePatch json.RawMessage `json:"mergePatch,omitempty"`
	// JSONPatch is a JSON patch (RFC 6902).
	JSONPatch json.RawMessage `json:"jsonPatch,omitempty"`

	selector   labels.Selector
	names      sets.Set[string]
	mergePatch value
	jsonPatch  []operation
}

// Manifest names manifests of the template.
type Manifest struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
}

// Clusters are those with one of the names that also match the selector. Left out, each of the two takes all.
type Clusters struct {
	Names                []string `json:"names,omitempty"`
	metav1.LabelSelector `json:",inline"`
}

// Assignment sets a field to a value. Exactly one of Value, ClusterName, Label, Claim and ByCluster says where it is from.
type Assignment struct {
	// Path of the field as a JSON pointer, such as /spec/replicas. What is missing on the way to it is made.
	Path string `json:"path"`
	// Value is the same for all clusters.
	Value json.RawMessage `json:"value,omitempty"`
	// ClusterName is the name of the cluster.
	ClusterName bool `json:"clusterName,omitempty"`
	// Label of the ManagedCluster.
	Label string `json:"label,omitempty"`
	// Claim of the ManagedCluster.
	Claim string `json:"claim,omitempty"`
	// ByCluster is a value for each cluster, by its name.
	ByCluster map[string]json.RawMessage `json:"byCluster,omitempty"`
	// Type is what becomes of a label or claim, which are text: string (the default), integer, number, boolean or json.
	Type Type `json:"type,omitempty"`
	// Default is for clusters that have no value. Without one, such a cluster gets nothing until it has.
	Default json.RawMessage `json:"default,omitempty"`

	pointer          pointer
	fixed, otherwise value
	each             map[string]value
}

// Type is the type of a value.
type Type string

// Types of values.
const (
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Boolean Type = "boolean"
	JSON    Type = "json"
)

// Cluster is what is known of a cluster.
type Cluster struct {
	Name   string
	Labels map[string]string
	Claims map[string]string
}

// Parse reads overrides and says what is wrong with them. Nothing is no override.
func Parse(path *field.Path, text string) ([]Override, field.ErrorList) {
	if text == "" {
		return nil, nil
	}
	if err := budget.YAML([]byte(text)); err != nil {
		return nil, field.ErrorList{field.Invalid(path, fmt.Sprintf("%d bytes", len(text)), err.Error())}
	}
	var overrides []Override
	if err := yaml.UnmarshalStrict([]byte(text), &overrides); err != nil {
		return nil, field.ErrorList{field.Invalid(path, "…", fmt.Sprintf("this is no YAML list of overrides: %v", err))}
	}
	var errs field.ErrorList
	changes := 0
	for i := range overrides {
		errs = append(errs, overrides[i].complete(path.Index(i))...)
		changes += overrides[i].changes()
	}
	if changes > mostChanges {
		errs = append(errs, field.Invalid(path, fmt.Sprintf("%d changes", changes),
			fmt.Sprintf("all overrides together may have %d changes: entries of set, merge patches, and operations of JSON patches", mostChanges)))
	}
	return overrides, errs
}

// changes is how many changes of one manifest the override is.
func (o *Override) changes() int {
	changes := len(o.Set) + len(o.jsonPatch)
	if len(o.MergePatch) > 0 {
		changes++
	}
	return max(changes, 1)
}

// complete prepares what is used for each cluster.
func (o *Override) complete(path *field.Path) (errs field.ErrorList) {
	o.selector = labels.Everything()
	if o.Clusters != nil {
		o.names = sets.New(o.Clusters.Names...)
		selector, err := budget.SelectorOf(&o.Clusters.LabelSelector)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("clusters"), "…", err.Error()))
		} else {
			o.selector = selector
		}
	}
	if len(o.Set) == 0 && len(o.MergePatch) == 0 && len(o.JSONPatch) == 0 {
		errs = append(errs, field.Required(path, "write what to change: set, mergePatch or jsonPatch"))
	}
	if len(o.MergePatch) > 0 {
		patch, err := read(o.MergePatch)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("mergePatch"), "…", fmt.Sprintf("this is no JSON merge patch: %v", err)))
		}
		o.mergePatch = patch
	}
	if len(o.JSONPatch) > 0 {
		operations, err := operationsOf(o.JSONPatch)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("jsonPatch"), "…", fmt.Sprintf("this is no JSON patch: %v", err)))
		}
		o.jsonPatch = operations
	}
	for i := range o.Set {
		at := path.Child("set").Index(i)
		errs = append(errs, o.Set[i].validate(at)...)
		if err := o.Set[i].complete(); err != nil {
			errs = append(errs, field.Invalid(at, o.Set[i].Path, err.Error()))
		}
	}
	return errs
}

func (m Manifest) matches(object *metav1.PartialObjectMetadata) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return is(m.APIVersion, object.APIVersion) && is(m.Kind, object.Kind) && is(m.Namespace, object.Namespace) && is(m.Name, object.Name)
}

func (o *Override) matches(cluster Cluster) bool {
	return o.Clusters == nil || (len(o.names) == 0 || o.names.Has(cluster.Name)) && o.selector.Matches(labels.Set(cluster.Labels))
}

// apply changes a manifest, with a value for each assignment.
func (o *Override) apply(d *document, values []value) error {
	for i := range o.Set {
		if err := d.set(o.Set[i].pointer, values[i]); err != nil {
			return fmt.Errorf("set %s: %w", o.Set[i].Path, err)
		}
	}
	if len(o.MergePatch) > 0 {
		if err := d.mergePatch(&o.mergePatch); err != nil {
			return fmt.Errorf("mergePatch: %w", err)
		}
	}
	if err := d.patch(o.jsonPatch); err != nil {
		return fmt.Errorf("jsonPatch: %w", err)
	}
	return nil
}
