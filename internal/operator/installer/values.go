package installer

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/deploy/charts"
)

// values are those that the charts of both operators have.
type values struct {
	ReplicaCount        int64               `json:"replicaCount"`
	CreateNamespace     bool                `json:"createNamespace"`
	Images              images              `json:"images"`
	PodSecurityContext  map[string]any      `json:"podSecurityContext"`
	SecurityContext     map[string]any      `json:"securityContext"`
	Resources           map[string]any      `json:"resources"`
	NodeSelector        map[string]any      `json:"nodeSelector"`
	Tolerations         []any               `json:"tolerations"`
	Affinity            map[string]any      `json:"affinity"`
	PriorityClassName   string              `json:"priorityClassName"`
	PodDisruptionBudget podDisruptionBudget `json:"podDisruptionBudget"`
	EnableSyncLabels    bool                `json:"enableSyncLabels"`
}

type images struct {
	Registry         string            `json:"registry"`
	Tag              string            `json:"tag"`
	ImagePullPolicy  string            `json:"imagePullPolicy"`
	ImagePullSecrets []any             `json:"imagePullSecrets"`
	Overrides        map[string]string `json:"overrides"`
	ImageCredentials imageCredentials  `json:"imageCredentials"`
}

type imageCredentials struct {
	CreateImageCredentials bool   `json:"createImageCredentials"`
	UserName               string `json:"userName"`
	Password               string `json:"password"`
	DockerConfigJSON       string `json:"dockerConfigJson"`
}

type podDisruptionBudget struct {
	Enabled bool `json:"enabled"`
}

// MergeValues puts values over others; maps are merged, all else is replaced.
func MergeValues(values, over map[string]any) {
	for key, value := range over {
		below, isMap := values[key].(map[string]any)
		above, overMap := value.(map[string]any)
		if isMap && overMap {
			MergeValues(below, above)
		} else {
			values[key] = value
		}
	}
}

// sections are the values that have others in them without which there is no installation.
var sections = []string{
	"images", "clusterManager", "klusterlet", "apiserver", "etcd", "storage", "pvc", "route", "loadbalancer", "nodeport", "tls", "metrics",
}

// decodeValues reads the values of a chart, with those that are given over its own, as a null one takes away. What the chart's schema
// refuses is refused.
func decodeValues(chart string, given map[string]any, into any) error {
	merged := map[string]any{}
	if err := readYAML(chart+"/values.yaml", &merged); err != nil {
		return err
	}
	content, err := json.Marshal(given)
	if err != nil {
		return fmt.Errorf("values of chart %s: %w", chart, err)
	}
	over := map[string]any{}
	if err := json.Unmarshal(content, &over); err != nil {
		return fmt.Errorf("values of chart %s: %w", chart, err)
	}
	MergeValues(merged, over)
	for _, section := range sections {
		if value, found := merged[section]; found && value == nil {
			return fmt.Errorf("values of chart %s: %s is null: leave it out, or give some of its values", chart, section)
		}
	}
	deleteNulls(merged)
	if err := validate(chart, merged); err != nil {
		return fmt.Errorf("values of chart %s: %w", chart, err)
	}
	if content, err = json.Marshal(merged); err != nil {
		return fmt.Errorf("values of chart %s: %w", chart, err)
	}
	return json.Unmarshal(content, into)
}

func deleteNulls(values map[string]any) {
	maps.DeleteFunc(values, func(_ string, value any) bool { return value == nil })
	for _, value := range values {
		if nested, isMap := value.(map[string]any); isMap {
			deleteNulls(nested)
		}
	}
}

// validate checks values by the schema of a chart, as Helm does.
func validate(chart string, values map[string]any) error {
	const name = "values.schema.json"
	content, err := charts.Files.ReadFile(chart + "/" + name)
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(name, document); err != nil {
		return err
	}
	schema, err := compiler.Compile(name)
	if err != nil {
		return err
	}
	err = schema.Validate(values)
	if _, invalid := errors.AsType[*jsonschema.ValidationError](err); invalid {
		_, faults, _ := strings.Cut(err.Error(), "\n") // the first line names the schema
		var lines []string
		for line := range strings.SplitSeq(faults, "\n") {
			lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "- "))
		}
		return errors.New(strings.Join(lines, "; "))
	}
	return err
}

// readYAML reads a file of a chart.
func readYAML(file string, into any) error {
	content, err := charts.Files.ReadFile(file)
	if err == nil {
		content, err = yaml.YAMLToJSON(content)
	}
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
