// Command bundle writes the bundles of the two operators for the Operator Lifecycle Manager, from their charts, to deploy/olm.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// operator is what a bundle says that is not in the chart.
type operator struct {
	chart, displayName, description string
	// crd is the file of the CRD in the chart, kind and title what it defines, about what that is.
	crd, kind, title, about string
}

var operators = []operator{{
	chart: "cluster-manager", displayName: "Capstan Cluster Manager",
	description: "Turns this cluster into a hub, with which other clusters register and from which they pull their work. Create a " +
		"`ClusterManager` named `cluster-manager`; the operator installs and upgrades the hub.",
	crd: "clustermanagers.yaml", kind: "ClusterManager", title: "Cluster Manager", about: "The hub that the operator installs.",
}, {
	chart: "klusterlet", displayName: "Capstan Klusterlet",
	description: "Joins this cluster to a hub. Create a Secret `bootstrap-hub-kubeconfig` in the namespace " +
		"`open-cluster-management-agent`, with a kubeconfig for the hub, and a `Klusterlet`; the operator installs and upgrades the agent.",
	crd: "klusterlets.yaml", kind: "Klusterlet", title: "Klusterlet", about: "The agent of one hub on this cluster.",
}}

// Packages of Open Cluster Management have the names of the charts; ours may be in the same catalog.
const prefix = "capstan-"

const repository = "https://github.com/capstan-io/capstan"

func main() {
	source := flag.String("charts", "deploy/charts", "folder with the charts")
	out := flag.String("out", "deploy/olm", "folder of the bundles")
	version := flag.String("version", "", "version of the bundles and of the images in them, such as v1.2.3; without it, that of Chart.yaml")
	flag.Parse()
	for _, o := range operators {
		if err := o.bundle(*source, filepath.Join(*out, o.chart), *version); err != nil {
			fmt.Fprintf(os.Stderr, "bundle %s: %v\n", o.chart, err)
			os.Exit(1)
		}
	}
}

// bundle writes the two folders of a bundle.
func (o operator) bundle(source, out, version string) error {
	loaded, err := loader.Load(filepath.Join(source, o.chart))
	if err != nil {
		return err
	}
	if version != "" {
		loaded.Metadata.Version, loaded.Metadata.AppVersion = strings.TrimPrefix(version, "v"), version
	}
	objects, err := render(loaded)
	if err != nil {
		return err
	}
	csv, err := o.serviceVersion(loaded.Metadata, objects)
	if err != nil {
		return err
	}
	crd, err := readCRD(filepath.Join(source, o.chart, "crds", o.crd))
	if err != nil {
		return err
	}
	manifests := filepath.Join(out, "manifests")
	if err := write(filepath.Join(manifests, prefix+o.chart+".clusterserviceversion.yaml"), csv); err != nil {
		return err
	}
	if err := write(filepath.Join(manifests, o.crd), crd); err != nil {
		return err
	}
	return write(filepath.Join(out, "metadata", "annotations.yaml"), o.annotations())
}

// object is one of a chart, by its kind.
type object = map[string]any

func render(loaded *chart.Chart) (map[string]object, error) {
	release := common.ReleaseOptions{Name: loaded.Name(), Namespace: "open-cluster-management", IsInstall: true, Revision: 1}
	values, err := util.ToRenderValues(loaded, nil, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{}.Render(loaded, values)
	if err != nil {
		return nil, err
	}
	objects := map[string]object{}
	for name, content := range files {
		if path.Ext(name) != ".yaml" {
			continue
		}
		for document := range strings.SplitSeq("\n"+content, "\n---") {
			rendered := object{}
			if err := yaml.Unmarshal([]byte(document), &rendered); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if kind, ok := rendered["kind"].(string); ok {
				objects[kind] = rendered
			}
		}
	}
	return objects, nil
}

func (o operator) serviceVersion(chart *chart.Metadata, objects map[string]object) (object, error) {
	example := objects[o.kind]
	example["metadata"] = object{"name": o.chart}
	examples, err := json.MarshalIndent([]any{example}, "", "  ")
	if err != nil {
		return nil, err
	}
	deployment := objects["Deployment"]
	image, err := imageOf(deployment)
	if err != nil {
		return nil, err
	}
	return object{
		"apiVersion": "operators.coreos.com/v1alpha1",
		"kind":       "ClusterServiceVersion",
		"metadata": object{
			"name":      prefix + o.chart + ".v" + chart.Version,
			"namespace": "open-cluster-management",
			"labels": object{
				"operatorframework.io/arch.amd64": "supported", "operatorframework.io/arch.arm64": "supported",
				"operatorframework.io/os.linux": "supported",
			},
			"annotations": object{
				"alm-examples":   string(examples),
				"capabilities":   "Full Lifecycle",
				"categories":     "Integration & Delivery",
				"containerImage": image,
				"description":    chart.Description + ".",
				"repository":     repository,
				"support":        "Capstan",
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
				"name": strings.TrimSuffix(o.crd, ".yaml") + ".operator.open-cluster-management.io", "version": "v1", "kind": o.kind,
				"displayName": o.title, "description": o.about,
			}}},
			"install": object{"strategy": "deployment", "spec": object{
				"clusterPermissions": []any{object{"serviceAccountName": o.chart, "rules": objects["ClusterRole"]["rules"]}},
				"deployments":        []any{object{"name": o.chart, "spec": deployment["spec"]}},
			}},
			"relatedImages": []any{object{"name": "operator", "image": image}},
		},
	}, nil
}

// icon is a capstan seen from above, as SVG in base64.
const icon = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCA2NCA2NCI+PGcgc3Ryb2tlPSIjMWY0ZTc5IiBzdHJva2Utd2lkdGg9IjUiPjxwYXRo" +
	"IGQ9Ik0zMiA0djU2TTQgMzJoNTZNMTIgMTJsNDAgNDBNNTIgMTJMMTIgNTIiLz48Y2lyY2xlIGN4PSIzMiIgY3k9IjMyIiByPSIxNCIgZmlsbD0iI2ZmZiIvPjwvZz48L3N2Zz4="

func imageOf(deployment object) (string, error) {
	data, err := json.Marshal(deployment)
	if err != nil {
		return "", err
	}
	var parsed struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct{ Image string }
				}
			}
		}
	}
	if err := json.Unmarshal(data, &parsed); err != nil {
		return "", err
	}
	containers := parsed.Spec.Template.Spec.Containers
	if len(containers) != 1 {
		return "", fmt.Errorf("the operator has %d containers", len(containers))
	}
	return containers[0].Image, nil
}

// readCRD returns the CRD of a chart without what is for Helm.
func readCRD(file string) (object, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return object{"apiVersion": crd.APIVersion, "kind": crd.Kind, "metadata": object{"name": crd.Name}, "spec": crd.Spec}, nil
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
