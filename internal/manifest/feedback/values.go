package feedback

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// MaxJSONRaw is how many bytes of JSON a value of type JsonRaw may have at most: the API holds no more.
const MaxJSONRaw = 1024

// maxString is how many bytes a value of type String may have. The API knows no limit, but all values of a ManifestWork have to
// fit into one object, or nothing at all can be reported.
const maxString = 64 << 10

// Values reads what the rules ask for. Of what cannot be read the error says why, one line for each; the other values are
// returned all the same. maxJSONRaw is the largest JsonRaw in bytes; 0 is for none.
func Values(object *unstructured.Unstructured, rules []workv1.FeedbackRule, maxJSONRaw int) ([]workv1.FeedbackValue, error) {
	r := reader{object: object, maxJSONRaw: maxJSONRaw, names: map[string]bool{}}
	for _, rule := range rules {
		r.readRule(rule)
	}
	return r.values, errors.Join(r.failures...)
}

// reader reads values from one object.
type reader struct {
	object     *unstructured.Unstructured
	maxJSONRaw int
	names      map[string]bool
	values     []workv1.FeedbackValue
	failures   []error
}

func (r *reader) readRule(rule workv1.FeedbackRule) {
	paths := rule.JSONPaths
	if rule.Type == workv1.WellKnownStatusType {
		known, ok := WellKnown(r.object.GroupVersionKind())
		if !ok {
			r.failures = append(r.failures, fmt.Errorf("there is no well-known status of %s %s; name the fields to report with a rule of type %s",
				r.object.GetAPIVersion(), r.object.GetKind(), workv1.JSONPathsType))
			return
		}
		paths = known
	}
	for _, path := range paths {
		if err := r.readPath(path); err != nil {
			r.failures = append(r.failures, err)
		}
	}
}

func (r *reader) readPath(path workv1.JSONPath) error {
	if r.names[path.Name] {
		return fmt.Errorf("the name %q is given to several values; give each a name of its own", path.Name)
	}
	if version := r.object.GroupVersionKind().Version; path.Version != "" && path.Version != version {
		return fmt.Errorf("the path %q is for version %s, but the manifest is of version %s; leave version empty, or change one of them",
			path.Name, path.Version, version)
	}
	found, err := find(r.object, path.Path)
	if err != nil {
		return fmt.Errorf("the path %q cannot be read: %w", path.Name, err)
	}
	if found == nil {
		return nil
	}
	value, err := r.typed(found)
	if err != nil {
		return fmt.Errorf("the value %q cannot be reported: %w", path.Name, err)
	}
	r.names[path.Name] = true
	r.values = append(r.values, workv1.FeedbackValue{Name: path.Name, Value: value})
	return nil
}

// find returns what a path leads to: one value, a list if it leads to several, or nil.
func find(object *unstructured.Unstructured, path string) (any, error) {
	expression := jsonpath.New("path").AllowMissingKeys(true)
	if err := expression.Parse("{" + path + "}"); err != nil {
		return nil, fmt.Errorf("%q is no JSON path, such as .status.readyReplicas: %w", path, err)
	}
	results, err := expression.FindResults(object.Object)
	switch {
	case err != nil && !strings.HasPrefix(path, "."):
		return nil, fmt.Errorf("%q: %w; a path begins with a dot, such as .status.readyReplicas", path, err)
	case err != nil:
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	var found []any
	for _, result := range results {
		for _, value := range result {
			if value.IsValid() && value.CanInterface() {
				found = append(found, value.Interface())
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	default:
		return found, nil
	}
}

// typed gives a value its type.
func (r *reader) typed(found any) (workv1.FieldValue, error) {
	switch found := found.(type) {
	case int64:
		return workv1.FieldValue{Type: workv1.Integer, Integer: &found}, nil
	case bool:
		return workv1.FieldValue{Type: workv1.Boolean, Boolean: &found}, nil
	case string:
		if len(found) > maxString {
			return workv1.FieldValue{}, fmt.Errorf("it has %d bytes, and %d is the limit", len(found), maxString)
		}
		return workv1.FieldValue{Type: workv1.String, String: &found}, nil
	}
	if r.maxJSONRaw == 0 {
		return workv1.FieldValue{}, errors.New("it is no integer, string or boolean, and other values are reported only with the feature gate RawFeedbackJsonString of the agent")
	}
	text, err := encode(found)
	if err != nil {
		return workv1.FieldValue{}, err
	}
	if len(text) > r.maxJSONRaw {
		return workv1.FieldValue{}, fmt.Errorf("it has %d bytes of JSON, and %d is the limit; ask for a part of it", len(text), r.maxJSONRaw)
	}
	return workv1.FieldValue{Type: workv1.JSONRaw, JSONRaw: &text}, nil
}

// encode writes JSON for people: without escapes for HTML.
func encode(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}
