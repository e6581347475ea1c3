// Command charts writes the files of the Helm charts in deploy/charts that follow from the CRDs: copies of the CRDs, and the schemas of the
// values.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// charts are all charts, each with the plural of the CRD of which values are a part, or none.
var charts = map[string]string{"capstan-hub": "", "cluster-manager": "clustermanagers", "klusterlet": "klusterlets",
	"cluster-proxy": "", "managed-serviceaccount": "", "resource-usage-collect-addon": ""}

// copied are CRDs that a chart brings as they are, where a cluster does not have them. They outlive its releases.
var copied = map[string][]string{
	"cluster-proxy": {"apps.open-cluster-management.io_gitopsclusters.yaml"},
	"managed-serviceaccount": {"authentication.open-cluster-management.io_managedserviceaccounts.yaml",
		"rbac.open-cluster-management.io_clusterpermissions.yaml"},
}

func main() {
	root := flag.String("root", ".", "directory of the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string) error {
	for chart, plural := range charts {
		if err := write(root, chart, plural); err != nil {
			return fmt.Errorf("chart %s: %w", chart, err)
		}
	}
	return nil
}

func write(root, chart, plural string) error {
	dir := filepath.Join(root, "deploy", "charts", chart)
	for _, file := range copied[chart] {
		if err := copyCRD(root, dir, file); err != nil {
			return err
		}
	}
	if plural == "" {
		return writeSchema(root, dir, chart, apiextensionsv1.JSONSchemaProps{})
	}
	crd, err := readCRD(filepath.Join(root, "deploy", "crds", "operator.open-cluster-management.io_"+plural+".yaml"))
	if err != nil {
		return err
	}
	if err := writeSchema(root, dir, chart, crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]); err != nil {
		return err
	}
	return writeCRD(dir, chart, plural, crd)
}

func copyCRD(root, dir, file string) error {
	data, err := os.ReadFile(filepath.Join(root, "deploy", "crds", file))
	if err != nil {
		return err
	}
	_, plural, _ := strings.Cut(file, "_")
	return os.WriteFile(filepath.Join(dir, "crds", plural), data, 0o600)
}

func readCRD(file string) (*apiextensionsv1.CustomResourceDefinition, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	crd := new(apiextensionsv1.CustomResourceDefinition)
	return crd, yaml.UnmarshalStrict(data, crd)
}

// writeCRD writes the CRD as one that Helm keeps when the release is deleted, and lets the release of the usual name have.
func writeCRD(dir, chart, plural string, crd *apiextensionsv1.CustomResourceDefinition) error {
	crd.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	crd.Annotations["helm.sh/resource-policy"] = "keep"
	crd.Annotations["meta.helm.sh/release-name"] = chart
	crd.Annotations["meta.helm.sh/release-namespace"] = "open-cluster-management"
	object, err := toMap(crd)
	if err != nil {
		return err
	}
	delete(object, "status")
	delete(object["metadata"].(map[string]any), "creationTimestamp")
	data, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "crds", plural+".yaml"), data, 0o600)
}

// writeSchema writes values.schema.json: the schema of this folder, with those of the spec in it.
func writeSchema(root, dir, chart string, spec apiextensionsv1.JSONSchemaProps) error {
	data, err := os.ReadFile(filepath.Join(root, "tools", "charts", "schemas", chart+".yaml"))
	if err != nil {
		return err
	}
	schema := map[string]any{}
	if err := yaml.Unmarshal(data, &schema); err != nil {
		return err
	}
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	if err := fill(schema, spec); err != nil {
		return err
	}
	data, err = json.MarshalIndent(schema, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "values.schema.json"), append(data, '\n'), 0o600)
}

// fill replaces every `crd: FIELD` by the schema of the field in the spec. With `optional: true`, an empty object stands for no value.
func fill(schema map[string]any, spec apiextensionsv1.JSONSchemaProps) error {
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		property := property.(map[string]any)
		field, ok := property["crd"].(string)
		if !ok {
			if err := fill(property, spec); err != nil {
				return err
			}
			continue
		}
		found, ok := spec.Properties[field]
		if !ok {
			return fmt.Errorf("the CRD has no field spec.%s", field)
		}
		filled, err := toMap(found)
		if err != nil {
			return err
		}
		closeObjects(filled)
		if property["optional"] == true {
			filled = map[string]any{"anyOf": []any{filled, map[string]any{"type": "object", "maxProperties": 0}}}
		}
		properties[name] = filled
	}
	return nil
}

// closeObjects makes a schema of a CRD one for values: it refuses fields that it does not know, and has nothing that only an API server
// understands.
func closeObjects(schema map[string]any) {
	for _, key := range []string{"description", "default", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
		"x-kubernetes-map-type", "x-kubernetes-validations"} {
		delete(schema, key)
	}
	if schema["x-kubernetes-int-or-string"] == true {
		delete(schema, "x-kubernetes-int-or-string")
		delete(schema, "type")
	}
	if properties, ok := schema["properties"].(map[string]any); ok {
		schema["additionalProperties"] = false
		for _, property := range properties {
			closeObjects(property.(map[string]any))
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if nested, ok := schema[key].(map[string]any); ok {
			closeObjects(nested)
		}
	}
}

func toMap(from any) (map[string]any, error) {
	data, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	into := map[string]any{}
	return into, json.Unmarshal(data, &into)
}
