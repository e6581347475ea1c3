package installer

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"k8s.io/apimachinery/pkg/util/json"
)

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
	"images", "clusterManager", "klusterlet", "podDisruptionBudget",
	"apiserver", "etcd", "storage", "pvc", "route", "loadbalancer", "nodeport", "tls", "metrics",
}

// plain is a copy of values in the types of JSON, whatever types the caller has them in.
func plain(chart string, given map[string]any) (map[string]any, error) {
	values := map[string]any{}
	content, err := json.Marshal(given)
	if err == nil {
		err = json.Unmarshal(content, &values)
	}
	if err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", chart, err)
	}
	for _, section := range sections {
		if value, found := values[section]; found && value == nil {
			return nil, fmt.Errorf("values of chart %s: %s is null: leave it out, or give some of its values", chart, section)
		}
	}
	return values, nil
}

// deleteNulls takes away what null values say that is not to be there, where the chart has nothing itself: Helm would render the null.
func deleteNulls(values map[string]any) {
	maps.DeleteFunc(values, func(_ string, value any) bool { return value == nil })
	for _, value := range values {
		if nested, isMap := value.(map[string]any); isMap {
			deleteNulls(nested)
		}
	}
}

// validate checks values by the schema of a chart, as Helm does. Its errors have one line.
func validate(schema []byte, values map[string]any) error {
	const name = "values.schema.json"
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(name, document); err != nil {
		return err
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return err
	}
	err = compiled.Validate(values)
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return faults(invalid)
	}
	return err
}

func faults(invalid *jsonschema.ValidationError) error {
	hideTexts(invalid)
	_, faults, _ := strings.Cut(invalid.Error(), "\n") // the first line names the schema
	var lines []string
	for line := range strings.SplitSeq(faults, "\n") {
		lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "- "))
	}
	return errors.New(strings.Join(lines, "; "))
}

// hideTexts takes out of faults what text a value has, which may be a credential. Faults other than that of a pattern do not quote texts.
func hideTexts(invalid *jsonschema.ValidationError) {
	if pattern, ok := invalid.ErrorKind.(*kind.Pattern); ok {
		pattern.Got = "..."
	}
	for _, cause := range invalid.Causes {
		hideTexts(cause)
	}
}
