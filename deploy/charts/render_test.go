package charts

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// load reads an embedded chart as Helm does.
func load(t *testing.T, name string) *chartv2.Chart {
	t.Helper()
	var files []*archive.BufferedFile
	err := fs.WalkDir(Files, name, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := Files.ReadFile(file)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(file, name+"/"), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	if err := loaded.Validate(); err != nil {
		t.Fatal(err)
	}
	return loaded
}

// installation is a release of a chart, as an administrator installs it.
type installation struct {
	chart, release, namespace string
	// values is a values file.
	values string
	// there is what Helm finds in the cluster, beside the namespace kube-system.
	there existing
	// offline is without access to a cluster, as `helm template` renders, and Argo CD by it.
	offline bool
}

// install returns what an administrator installs who follows the documentation.
func install(chart, values string) installation {
	return installation{chart: chart, release: chart, namespace: namespaces[chart], values: values}
}

// namespaces are where the documentation installs the charts.
var namespaces = map[string]string{
	"cluster-manager":               "open-cluster-management",
	"klusterlet":                    "open-cluster-management",
	"capstan-hub":                   "multicluster-controlplane",
	"cluster-gateway-addon-manager": "open-cluster-management-addon",
	"cluster-proxy":                 "open-cluster-management-addon",
	"managed-serviceaccount":        "open-cluster-management-addon",
	"resource-usage-collect-addon":  "open-cluster-management-addon",
}

// files returns the rendered templates by their paths in the chart.
func (i installation) files(t *testing.T) (map[string]string, error) {
	t.Helper()
	chart := load(t, i.chart)
	var values map[string]any
	if err := yaml.Unmarshal([]byte(i.values), &values); err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: i.release, Namespace: i.namespace, IsInstall: true, Revision: 1}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = common.KubeVersion{Version: "v1.37.1", Major: "1", Minor: "37"}
	complete, err := util.ToRenderValues(chart, values, release, capabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := i.render(chart, complete)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, content := range rendered {
		files[strings.TrimPrefix(name, chart.Name()+"/templates/")] = content
	}
	return files, nil
}

func (i installation) render(chart *chartv2.Chart, values common.Values) (map[string]string, error) {
	if i.offline {
		return engine.Render(chart, values)
	}
	return engine.RenderWithClientProvider(chart, values, i.there)
}

// objects returns what is installed, in the order of the files.
func (i installation) objects(t *testing.T) objects {
	t.Helper()
	files, err := i.files(t)
	if err != nil {
		t.Fatal(err)
	}
	var all objects
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		all = append(all, parse(t, name, files[name])...)
	}
	return all
}

// parse returns the objects in a file.
func parse(t *testing.T, name, content string) (all objects) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+content, "\n---") {
		object := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, document)
		}
		if len(object) > 0 {
			all = append(all, unstructured.Unstructured{Object: object})
		}
	}
	return all
}

// fails returns the error with which the chart refuses the values.
func (i installation) fails(t *testing.T) string {
	t.Helper()
	_, err := i.files(t)
	if err == nil {
		t.Fatalf("chart %s accepts %s", i.chart, i.values)
	}
	return err.Error()
}

type objects []unstructured.Unstructured

// names are KIND/NAME, or KIND/NAMESPACE/NAME, of all objects, sorted.
func (o objects) names() []string {
	var names []string
	for _, object := range o {
		names = append(names, path.Join(object.GetKind(), object.GetNamespace(), object.GetName()))
	}
	slices.Sort(names)
	return names
}

// get converts the object with a name of names.
func get[T any](t *testing.T, from objects, name string) *T {
	t.Helper()
	at := slices.IndexFunc(from, func(object unstructured.Unstructured) bool {
		return path.Join(object.GetKind(), object.GetNamespace(), object.GetName()) == name
	})
	if at < 0 {
		t.Fatalf("no %s among %v", name, from.names())
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(from[at].Object, into, true); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return into
}
