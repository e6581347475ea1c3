// Command bundle writes the bundles of the two operators for the Operator Lifecycle Manager to deploy/olm: of what their charts
// install by default.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/deploy/charts"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// operator is what a bundle says that is not in the chart.
type operator struct {
	chart, displayName, description string
	// plural, kind and title are those of what its CRD defines, about what that is.
	plural, kind, title, about string
}

var operators = []operator{{
	chart: "cluster-manager", displayName: "Capstan Cluster Manager",
	description: "Turns this cluster into a hub, with which other clusters register and from which they pull their work. Create a " +
		"`ClusterManager` named `cluster-manager`; the operator installs and upgrades the hub.",
	plural: "clustermanagers", kind: "ClusterManager", title: "Cluster Manager", about: "The hub that the operator installs.",
}, {
	chart: "klusterlet", displayName: "Capstan Klusterlet",
	description: "Joins this cluster to a hub. Create a Secret `bootstrap-hub-kubeconfig` in the namespace " +
		"`open-cluster-management-agent`, with a kubeconfig for the hub, and a `Klusterlet`; the operator installs and upgrades the agent.",
	plural: "klusterlets", kind: "Klusterlet", title: "Klusterlet", about: "The agent of one hub on this cluster.",
}}

// Packages of Open Cluster Management have the names of the charts; ours may be in the same catalog.
const prefix = "capstan-"

const repository = "https://github.com/capstan-io/capstan"

// namespace is that of the operators, where everything of ours looks for them.
const namespace = "open-cluster-management"

func main() {
	out := flag.String("out", "deploy/olm", "folder of the bundles")
	version := flag.String("version", "", "version of the bundles and of the images in them, such as v1.2.3; without it, that of Chart.yaml")
	flag.Parse()
	for _, o := range operators {
		if err := o.bundle(filepath.Join(*out, o.chart), *version); err != nil {
			fmt.Fprintf(os.Stderr, "bundle %s: %v\n", o.chart, err)
			os.Exit(1)
		}
	}
}

// bundle writes the two folders of a bundle.
func (o operator) bundle(out, version string) error {
	chart := metadata{}
	content, err := charts.Files.ReadFile(o.chart + "/Chart.yaml")
	if err == nil {
		err = yaml.Unmarshal(content, &chart)
	}
	if err != nil {
		return err
	}
	if version != "" {
		chart.Version = strings.TrimPrefix(version, "v")
	}
	objects, err := o.build(version)
	if err != nil {
		return err
	}
	csv, err := o.serviceVersion(chart, objects)
	if err != nil {
		return err
	}
	definition := objects["CustomResourceDefinition"]
	definition["metadata"] = object{"name": o.plural + ".operator.open-cluster-management.io"}
	manifests := filepath.Join(out, "manifests")
	if err := write(filepath.Join(manifests, prefix+o.chart+".clusterserviceversion.yaml"), csv); err != nil {
		return err
	}
	if err := write(filepath.Join(manifests, o.plural+".yaml"), definition); err != nil {
		return err
	}
	return write(filepath.Join(out, "metadata", "annotations.yaml"), o.annotations())
}

// metadata is what Chart.yaml says.
type metadata struct {
	Version     string   `json:"version"`
	Description string   `json:"description"`
	KubeVersion string   `json:"kubeVersion"`
	Keywords    []string `json:"keywords"`
}

type object = map[string]any

// build returns what the chart installs by default.
func (o operator) build(tag string) (map[string]object, error) {
	built, err := installer.Objects(o.chart, map[string]any{"images": map[string]any{"tag": tag}})
	if err != nil {
		return nil, err
	}
	objects := map[string]object{}
	for _, one := range built {
		objects[one.GetKind()] = one.Object
	}
	return objects, nil
}

func (o operator) serviceVersion(chart metadata, objects map[string]object) (object, error) {
	examples, err := json.MarshalIndent([]any{o.example(objects[o.kind])}, "", "  ")
	if err != nil {
		return nil, err
	}
	deployment := objects["Deployment"]
	runs, err := containerOf(deployment)
	if err != nil {
		return nil, err
	}
	return object{
		"apiVersion": "operators.coreos.com/v1alpha1",
		"kind":       "ClusterServiceVersion",
		"metadata": object{
			"name":      prefix + o.chart + ".v" + chart.Version,
			"namespace": namespace,
			"labels": object{
				"operatorframework.io/arch.amd64": "supported", "operatorframework.io/arch.arm64": "supported",
				"operatorframework.io/os.linux": "supported",
			},
			"annotations": object{
				"alm-examples":   string(examples),
				"capabilities":   "Full Lifecycle",
				"categories":     "Integration & Delivery",
				"containerImage": runs.Image,
				"description":    chart.Description + ".",
				"olm.skipRange":  ">=0.0.0 <" + chart.Version, // every older version is upgraded to this one
				"repository":     repository,
				"support":        "Capstan",

				"operatorframework.io/suggested-namespace": namespace,
			},
		},
		"spec": object{
			"displayName":    o.displayName,
			"description":    o.description + "\n\nDocumentation: " + repository + "/blob/main/docs/charts.md\n",
			"version":        chart.Version,
			"maturity":       "alpha",
			"minKubeVersion": strings.TrimSuffix(strings.TrimPrefix(chart.KubeVersion, ">="), "-0"),
			"keywords":       chart.Keywords,
			"provider":       object{"name": "Capstan", "url": repository},
			"links":          []any{object{"name": "Source", "url": repository}},
			"icon":           []any{object{"base64data": icon, "mediatype": "image/svg+xml"}},
			"installModes": []any{
				object{"type": "OwnNamespace", "supported": false},
				object{"type": "SingleNamespace", "supported": false},
				object{"type": "MultiNamespace", "supported": false},
				object{"type": "AllNamespaces", "supported": true},
			},
			"customresourcedefinitions": object{"owned": []any{object{
				"name": o.plural + ".operator.open-cluster-management.io", "version": "v1", "kind": o.kind,
				"displayName": o.title, "description": o.about,
			}}},
			"install": object{"strategy": "deployment", "spec": object{
				"clusterPermissions": []any{object{"serviceAccountName": o.chart, "rules": objects["ClusterRole"]["rules"]}},
				"deployments":        []any{object{"name": o.chart, "spec": deployment["spec"]}},
			}},
			"relatedImages": runs.images(),
		},
	}, nil
}

// icon is a capstan seen from above, as SVG in base64.
const icon = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCA2NCA2NCI+PGcgc3Ryb2tlPSIjMWY0ZTc5IiBzdHJva2Utd2lkdGg9IjUiPjxwYXRo" +
	"IGQ9Ik0zMiA0djU2TTQgMzJoNTZNMTIgMTJsNDAgNDBNNTIgMTJMMTIgNTIiLz48Y2lyY2xlIGN4PSIzMiIgY3k9IjMyIiByPSIxNCIgZmlsbD0iI2ZmZiIvPjwvZz48L3N2Zz4="

// example returns what the console proposes to create: without images, so that hubs and agents are upgraded with their operator, whose
// image they have.
func (o operator) example(of object) object {
	spec := maps.Clone(of["spec"].(object))
	maps.DeleteFunc(spec, func(field string, _ any) bool { return strings.HasSuffix(strings.ToLower(field), "imagepullspec") })
	return object{"apiVersion": of["apiVersion"], "kind": of["kind"], "metadata": object{"name": o.chart}, "spec": spec}
}

// container is that of an operator.
type container struct {
	Image string
	Env   []struct{ Name, Value string }
}

func containerOf(deployment object) (*container, error) {
	data, err := json.Marshal(deployment)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []container
				}
			}
		}
	}
	if err := json.Unmarshal(data, &parsed); err != nil {
		return nil, err
	}
	containers := parsed.Spec.Template.Spec.Containers
	if len(containers) != 1 {
		return nil, fmt.Errorf("the operator has %d containers", len(containers))
	}
	return &containers[0], nil
}

// images are what a catalog is copied with: that of the operator, and others that it runs, which its variables name.
func (c *container) images() []any {
	images := []any{object{"name": "operator", "image": c.Image}}
	for _, variable := range c.Env {
		if name, isImage := strings.CutSuffix(variable.Name, "_IMAGE"); isImage && variable.Value != c.Image {
			images = append(images, object{"name": strings.ToLower(name), "image": variable.Value})
		}
	}
	return images
}

func (o operator) annotations() object {
	const bundle, channel = "operators.operatorframework.io.bundle.", "stable"
	return object{"annotations": object{
		bundle + "mediatype.v1":       "registry+v1",
		bundle + "manifests.v1":       "manifests/",
		bundle + "metadata.v1":        "metadata/",
		bundle + "package.v1":         prefix + o.chart,
		bundle + "channels.v1":        channel,
		bundle + "channel.default.v1": channel,
	}}
}

func write(file string, content object) error {
	data, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // everybody may read manifests
		return err
	}
	header := "# Written by `make generate` from the chart of the operator.\n"
	return os.WriteFile(file, append([]byte(header), data...), 0o644) //nolint:gosec // the same
}
