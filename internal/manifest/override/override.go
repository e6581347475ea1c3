// Package override makes the manifests of one template differ from cluster to cluster: it sets fields to values of
// the cluster, and patches. It is pure, and no text is pasted into other text: a value is a JSON value of a type that is
// known, so whatever a label holds, it stays one.
//
// Overrides are written as YAML, in the annotation capstan.io/overrides of a ManifestWorkReplicaSet.
package override

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/budget"
)

// Bounds of the overrides of a set. The steps are those for one cluster: each change of a manifest is one, and one more for every KiB
// that it reads.
const (
	mostChanges = 1000
	mostSteps   = 40_000
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
	changes := len(o.Set) + len(o.patch)
	if len(o.MergePatch) > 0 {
		changes++
	}
	return max(changes, 1)
}

// complete prepares what is used for each cluster.
func (o *Override) complete(path *field.Path) (errs field.ErrorList) {
	o.selector = labels.Everything()
	if o.Clusters != nil {
		selector, err := selectorOf(&o.Clusters.LabelSelector)
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

func selectorOf(selector *metav1.LabelSelector) (labels.Selector, error) {
	if err := budget.Selectors(selector); err != nil {
		return nil, err
	}
	return metav1.LabelSelectorAsSelector(selector)
}

// Apply returns the manifests as the cluster is to have them. Those that are given stay as they are. It fails with a budget.Exceeded if
// that would take too long, or too much would become of them.
func Apply(overrides []Override, manifests []workv1.Manifest, cluster Cluster) ([]workv1.Manifest, error) {
	allowed := newAllowance(manifests)
	result := make([]workv1.Manifest, len(manifests))
	for i := range manifests {
		content, err := allowed.applyTo(manifests[i].Raw, overrides, cluster)
		if err != nil {
			return nil, fmt.Errorf("overrides of manifest %d: %w", i, err)
		}
		result[i].Raw = content
	}
	return result, nil
}

// allowance is what the overrides for one cluster may take.
type allowance struct {
	steps *budget.Meter
	bytes *budget.Meter // of the results
	most  int           // bytes of one result
}

func newAllowance(manifests []workv1.Manifest) *allowance {
	size := 0
	for i := range manifests {
		size += len(manifests[i].Raw)
	}
	most := budget.Result(size)
	return &allowance{
		steps: budget.NewMeter("the overrides change too many manifests too often, counted in steps", mostSteps),
		bytes: budget.NewMeter("with the overrides, the manifests have too many bytes", most),
		most:  most,
	}
}

// Try finds out whether the overrides go beyond what they may for these manifests: what is larger than it may be for one cluster is refused
// when it is written. It tries each override on what those before it make of the manifests for all clusters, as if it were for the
// cluster. Whatever else is wrong with an override may be so on some clusters only.
func Try(overrides []Override, manifests []workv1.Manifest) error {
	allowed := newAllowance(manifests)
	for i := range manifests {
		if err := allowed.try(manifests[i].Raw, overrides); err != nil {
			return fmt.Errorf("overrides of manifest %d: %w", i, err)
		}
	}
	return nil
}

func (a *allowance) try(raw []byte, overrides []Override) error {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil //nolint:nilerr // not what is tried
	}
	result := raw
	for i := range overrides {
		o := &overrides[i]
		if !o.Manifest.matches(&object) {
			continue
		}
		changed, err := o.try(a, result)
		switch {
		case budget.Is(err):
			return fmt.Errorf("override %d: %w", i, err)
		case err == nil && len(changed) > a.most:
			return fmt.Errorf("override %d: %w", i, a.bytes.Spend(len(changed)))
		case err == nil && o.Clusters == nil:
			result = changed
		}
	}
	return a.bytes.Spend(len(result))
}

func (a *allowance) applyTo(raw []byte, overrides []Override, cluster Cluster) ([]byte, error) {
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
		if changed, err = o.apply(a, changed, cluster); err != nil {
			return nil, fmt.Errorf("override %d: %w", i, err)
		}
	}
	return changed, a.bytes.Spend(len(changed))
}

// spend takes the steps of a change of a manifest.
func (a *allowance) spend(raw []byte, changes int) error {
	return a.steps.Spend(changes + len(raw)>>10)
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

// try leaves out what it cannot set without a cluster.
func (o *Override) try(allowed *allowance, raw []byte) (changed []byte, err error) {
	changed = raw
	for i := range o.Set {
		if err := allowed.spend(changed, 1); err != nil {
			return nil, err
		}
		switch set, err := o.Set[i].apply(changed, Cluster{}); {
		case budget.Is(err):
			return nil, fmt.Errorf("set %s: %w", o.Set[i].Path, err)
		case err == nil:
			changed = set
		}
	}
	return o.applyPatches(allowed, changed)
}

func (o *Override) apply(allowed *allowance, raw []byte, cluster Cluster) (changed []byte, err error) {
	changed = raw
	for i := range o.Set {
		if err := allowed.spend(changed, 1); err != nil {
			return nil, err
		}
		if changed, err = o.Set[i].apply(changed, cluster); err != nil {
			return nil, fmt.Errorf("set %s: %w", o.Set[i].Path, err)
		}
	}
	return o.applyPatches(allowed, changed)
}

func (o *Override) applyPatches(allowed *allowance, raw []byte) (changed []byte, err error) {
	changed = raw
	if len(o.MergePatch) > 0 {
		if err := allowed.spend(changed, 1); err != nil {
			return nil, err
		}
		if changed, err = jsonpatch.MergePatch(changed, o.MergePatch); err != nil {
			return nil, fmt.Errorf("mergePatch: %w", err)
		}
	}
	if len(o.patch) > 0 {
		if err := allowed.spend(changed, len(o.patch)); err != nil {
			return nil, err
		}
		if changed, err = allowed.patch(changed, o.patch); err != nil {
			return nil, fmt.Errorf("jsonPatch: %w", err)
		}
	}
	return changed, nil
}

// patch applies a JSON patch. Operations that copy a part of the object double it with each of them.
func (a *allowance) patch(raw []byte, patch jsonpatch.Patch) ([]byte, error) {
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = int64(a.most)
	changed, err := patch.ApplyWithOptions(raw, options)
	var copies *jsonpatch.AccumulatedCopySizeError
	if errors.As(err, &copies) {
		return nil, &budget.Exceeded{What: "its copy operations copy too many bytes", Limit: fmt.Sprintf("%d bytes", a.most)}
	}
	return changed, err
}
