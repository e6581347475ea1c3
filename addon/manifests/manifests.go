// Package manifests makes the objects of an add-on from Go templates of YAML, such as files that the program embeds.
//
// Templates have the values that they are rendered with, and those that every add-on has:
//
//	ClusterName              the cluster that the agent is for
//	AddonInstallNamespace    the namespace of the agent
//	InstallMode              Default, or Hosted if the agent runs on another cluster
//	HubKubeConfigSecret      the Secret with the access to the hub
//	ManagedKubeConfigSecret  the Secret with the access to the cluster, in mode Hosted
//
// The last two are defaults; the others cannot be overridden. In addition to the functions of text/template there is toJson, which also
// quotes values for YAML: nodeSelector: {{ .NodeSelector | toJson }}.
package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"text/template"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/values"
	"github.com/capstan-io/capstan/internal/machinery/addon/documents"
)

// Templates are the parsed files of an add-on. They may be used from several goroutines at once.
type Templates struct {
	// files are in the order of their objects.
	files []file
}

type file struct {
	path     string
	template *template.Template
}

// Parse reads all files that match one of the patterns of path.Match, in alphabetical order. It fails if a pattern matches no file, or
// if a file is not a valid template.
func Parse(files fs.FS, patterns ...string) (*Templates, error) {
	var paths []string
	for _, pattern := range patterns {
		matches, err := fs.Glob(files, pattern)
		if err != nil {
			return nil, fmt.Errorf("find the templates %s: %w", pattern, err)
		}
		if len(matches) == 0 {
			return nil, fmt.Errorf("no template matches %s", pattern)
		}
		paths = append(paths, matches...)
	}
	slices.Sort(paths)
	templates := &Templates{}
	for _, path := range slices.Compact(paths) {
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, fmt.Errorf("read the template %s: %w", path, err)
		}
		parsed, err := template.New(path).Funcs(template.FuncMap{"toJson": toJSON}).Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("parse the template: %w", err)
		}
		templates.files = append(templates.files, file{path: path, template: parsed})
	}
	return templates, nil
}

// Render returns the objects for a cluster. It fails, naming the file, if a template prints a value that does not exist, or if its
// output is not an object. Conditions may refer to values that do not exist.
func (t *Templates) Render(installation addon.Installation, given values.Values) ([]client.Object, error) {
	data := withBuiltIn(installation, given)
	var objects []client.Object
	for _, file := range t.files {
		var text bytes.Buffer
		if err := file.template.Execute(&text, data); err != nil {
			return nil, fmt.Errorf("render the template: %w", err)
		}
		if before, _, missing := bytes.Cut(text.Bytes(), []byte("<no value>")); missing {
			return nil, fmt.Errorf("render the template %s: a value is missing in what is line %d of the result", file.path, 1+
				bytes.Count(before, []byte("\n")))
		}
		found, err := documents.Objects(file.path, text.Bytes())
		if err != nil {
			return nil, fmt.Errorf("render the template %w", err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func withBuiltIn(installation addon.Installation, given values.Values) values.Values {
	defaults := values.Values{
		"HubKubeConfigSecret":     installation.HubKubeconfigSecret(),
		"ManagedKubeConfigSecret": installation.ManagedKubeconfigSecret(),
	}
	builtIn := values.Values{
		"ClusterName":           installation.Cluster.Name,
		"AddonInstallNamespace": installation.Namespace(),
		"InstallMode":           string(installation.Mode()),
	}
	return values.Merge(values.Merge(defaults, given), builtIn)
}

func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}
