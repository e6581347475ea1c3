// Package override makes the manifests of one template differ from cluster to cluster (gap W8): it sets fields to values of
// the cluster, and patches. It is pure, and no text is pasted into other text: a value is a JSON value of a type that is
// known, so whatever a label holds, it stays one.
//
// Overrides are written as YAML, in the annotation capstan.io/overrides of a ManifestWorkReplicaSet.
package override

import (
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
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

	selector labels.Selector
	patch    jsonpatch.Patch
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
	var overrides []Override
	if err := yaml.UnmarshalStrict([]byte(text), &overrides); err != nil {
		return nil, field.ErrorList{field.Invalid(path, "…", fmt.Sprintf("this is no YAML list of overrides: %v", err))}
	}
	var errs field.ErrorList
	for i := range overrides {
		errs = append(errs, overrides[i].complete(path.Index(i))...)
	}
	return overrides, errs
}

// complete prepares what is used for each cluster.
func (o *Override) complete(path *field.Path) (errs field.ErrorList) {
	o.selector = labels.Everything()
	if o.Clusters != nil {
		selector, err := metav1.LabelSelectorAsSelector(&o.Clusters.LabelSelector)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("clusters"), o.Clusters, err.Error()))
		} else {
			o.selector = selector
		}
	}
	if len(o.Set) == 0 && len(o.MergePatch) == 0 && len(o.JSONPatch) == 0 {
		errs = append(errs, field.Required(path, "write what to change: set, mergePatch or jsonPatch"))
	}
	if len(o.MergePatch) > 0 {
		if _, err := jsonpatch.MergePatch([]byte("{}"), o.MergePatch); err != nil {
			errs = append(errs, field.Invalid(path.Child("mergePatch"), "…", fmt.Sprintf("this is no JSON merge patch: %v", err)))
		}
	}
	if len(o.JSONPatch) > 0 {
		patch, err := jsonpatch.DecodePatch(o.JSONPatch)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("jsonPatch"), "…", fmt.Sprintf("this is no JSON patch: %v", err)))
		}
		o.patch = patch
	}
	for i := range o.Set {
		errs = append(errs, o.Set[i].validate(path.Child("set").Index(i))...)
	}
	return errs
}

// Apply returns the manifests as the cluster is to have them. Those that are given stay as they are.
func Apply(overrides []Override, manifests []workv1.Manifest, cluster Cluster) ([]workv1.Manifest, error) {
	result := make([]workv1.Manifest, len(manifests))
	for i := range manifests {
		content, err := applyTo(manifests[i].Raw, overrides, cluster)
		if err != nil {
			return nil, fmt.Errorf("overrides of manifest %d: %w", i, err)
		}
		result[i].Raw = content
	}
	return result, nil
}

func applyTo(raw []byte, overrides []Override, cluster Cluster) ([]byte, error) {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("the manifest is not a Kubernetes object: %w", err)
	}
	changed := raw
	for i := range overrides {
		o := &overrides[i]
		if !o.Manifest.matches(&object) || !o.matches(cluster) {
			continue
		}
		var err error
		if changed, err = o.apply(changed, cluster); err != nil {
			return nil, fmt.Errorf("override %d: %w", i, err)
		}
	}
	return changed, nil
}

func (m Manifest) matches(object *metav1.PartialObjectMetadata) bool {
	is := func(wanted, have string) bool { return wanted == "" || wanted == have }
	return is(m.APIVersion, object.APIVersion) && is(m.Kind, object.Kind) && is(m.Namespace, object.Namespace) && is(m.Name, object.Name)
}

func (o *Override) matches(cluster Cluster) bool {
	if o.Clusters == nil {
		return true
	}
	named := len(o.Clusters.Names) == 0
	for _, name := range o.Clusters.Names {
		named = named || name == cluster.Name
	}
	return named && o.selector.Matches(labels.Set(cluster.Labels))
}

func (o *Override) apply(raw []byte, cluster Cluster) (changed []byte, err error) {
	changed = raw
	for _, a := range o.Set {
		if changed, err = a.apply(changed, cluster); err != nil {
			return nil, fmt.Errorf("set %s: %w", a.Path, err)
		}
	}
	if len(o.MergePatch) > 0 {
		if changed, err = jsonpatch.MergePatch(changed, o.MergePatch); err != nil {
			return nil, fmt.Errorf("mergePatch: %w", err)
		}
	}
	if len(o.patch) > 0 {
		if changed, err = o.patch.Apply(changed); err != nil {
			return nil, fmt.Errorf("jsonPatch: %w", err)
		}
	}
	return changed, nil
}
