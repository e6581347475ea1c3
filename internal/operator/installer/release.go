package installer

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"strings"
	"text/template"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/deploy/charts"
)

// managedBy is what the objects say that they are managed by.
const managedBy = "capstan"

// release is an installation of a chart.
type release struct {
	chart, name, namespace string
	values                 map[string]any
	// capabilities are those of the cluster that templates ask for.
	capabilities *common.Capabilities
	// existing is all that templates find in the cluster; nil if that is nothing.
	existing *unstructured.Unstructured
}

// objects are those of the release: CustomResourceDefinitions, then all others in the order in which Helm installs them.
func (r release) objects() ([]*unstructured.Unstructured, error) {
	chart, err := load(r.chart)
	if err != nil {
		return nil, fmt.Errorf("load chart %s: %w", r.chart, err)
	}
	values, err := r.complete(chart)
	if err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", r.chart, err)
	}
	files, err := engine.Engine{CustomTemplateFuncs: template.FuncMap{"lookup": r.lookup}}.Render(chart, values)
	if err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", r.chart, refusal(err))
	}
	return objects(chart, files)
}

// load reads a chart that is built into the program.
func load(name string) (*chartv2.Chart, error) {
	var files []*archive.BufferedFile
	err := fs.WalkDir(charts.Files, name, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := charts.Files.ReadFile(file)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(file, name+"/"), Data: content})
		return err
	})
	if err != nil {
		return nil, err
	}
	return loader.LoadFiles(files)
}

// complete puts the values over those of the chart, checks them by its schema, and adds what else templates read.
func (r release) complete(chart *chartv2.Chart) (common.Values, error) {
	options := common.ReleaseOptions{Name: r.name, Namespace: r.namespace, IsInstall: true, Revision: 1}
	const checkedBelow = true
	all, err := util.ToRenderValuesWithSchemaValidation(chart, r.values, options, r.capabilities, checkedBelow)
	if err != nil {
		return nil, err
	}
	values, err := all.Table("Values")
	if err != nil {
		return nil, err
	}
	about, err := all.Table("Release")
	if err != nil {
		return nil, err
	}
	about["Service"] = managedBy
	deleteNulls(values)
	return all, validate(chart.Schema, values)
}

// lookup is the function of templates that finds an object in the cluster.
func (r release) lookup(apiVersion, kind, namespace, name string) map[string]any {
	o := r.existing
	if o != nil && o.GetAPIVersion() == apiVersion && o.GetKind() == kind && o.GetNamespace() == namespace && o.GetName() == name {
		return o.Object
	}
	return map[string]any{}
}

const (
	saysWhere = "execution error at ("
	saysWhy   = "): "
)

var line = regexp.MustCompile(`[a-z-]+/templates/[\w.-]+:\d+`)

// refusal is what a chart says of values that it refuses. Of another fault, it has no more than the line, as text/template quotes values.
func refusal(err error) error {
	where, why, refused := strings.Cut(err.Error(), saysWhy)
	if refused && strings.HasPrefix(where, saysWhere) {
		return errors.New(why)
	}
	return fmt.Errorf("the template fails at %s", line.FindString(err.Error()))
}

// objects are those of a chart and of its rendered files.
func objects(chart *chartv2.Chart, files map[string]string) ([]*unstructured.Unstructured, error) {
	maps.DeleteFunc(files, func(name, _ string) bool { return path.Ext(name) != ".yaml" })
	_, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, fmt.Errorf("sort the objects of chart %s: %w", chart.Name(), err)
	}
	for _, crd := range chart.CRDObjects() {
		manifests = append([]releaseutil.Manifest{{Name: crd.Filename, Content: string(crd.File.Data)}}, manifests...)
	}
	var all []*unstructured.Unstructured
	for _, manifest := range manifests {
		object, err := decode(manifest.Content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", manifest.Name, err)
		}
		removeHelm(object)
		all = append(all, object)
	}
	return all, nil
}

func decode(manifest string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	content, err := yaml.YAMLToJSON([]byte(manifest))
	if err == nil {
		err = object.UnmarshalJSON(content)
	}
	return object, err
}

// removeHelm takes away what says that Helm manages an object, and how.
func removeHelm(object *unstructured.Unstructured) {
	const by = "app.kubernetes.io/managed-by"
	forHelm := func(key, _ string) bool { return strings.Contains(key, "helm.sh/") }
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	maps.DeleteFunc(labels, forHelm)
	maps.DeleteFunc(annotations, forHelm)
	if labels[by] != "" {
		labels[by] = managedBy
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
}
