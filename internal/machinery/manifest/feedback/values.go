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
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/budget/pathbudget"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// MaxJSONRaw is how many bytes of JSON a value of type JsonRaw may have at most: the API holds no more.
const MaxJSONRaw = 1024

// maxString is how many bytes a value of type String may have. The API knows no limit, but all values of a ManifestWork have to
// fit into one object, or nothing at all can be reported.
const maxString = 64 << 10

// Values reads what the rules request. Of what cannot be read the error says why, one line for each; the other values are
// returned all the same. maxJSONRaw is the largest JsonRaw in bytes; 0 is for none.
func Values(object *unstructured.Unstructured, rules []workv1.FeedbackRule, maxJSONRaw int) ([]workv1.FeedbackValue, error) {
	if n := countPaths(rules); n > pathbudget.Paths {
		return nil, budget.Count("JSON paths of the feedback rules of a manifest", n, pathbudget.Paths)
	}
	r := reader{object: object, maxJSONRaw: maxJSONRaw, names: map[string]bool{}, paths: pathbudget.NewReader(object.Object)}
	for _, rule := range rules {
		r.readRule(rule)
	}
	return r.values, errors.Join(r.failures...)
}

func countPaths(rules []workv1.FeedbackRule) (n int) {
	for i := range rules {
		n += max(len(rules[i].JSONPaths), 1)
	}
	return n
}

// reader reads values from one object.
type reader struct {
	object     *unstructured.Unstructured
	maxJSONRaw int
	names      map[string]bool
	paths      *pathbudget.Reader
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
	found, err := r.find(path.Path)
	if err != nil {
		return fmt.Errorf("the path %q cannot be read: %w", path.Name, err)
	}
	if len(found) == 0 || len(found) == 1 && found[0] == nil {
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

// find returns what a path leads to.
func (r *reader) find(path string) (found []any, err error) {
	parsed, err := pathbudget.Parse("path", "{"+path+"}")
	if err != nil {
		return nil, fmt.Errorf("%s is no JSON path, such as .status.readyReplicas: %w", text.Quote(path), err)
	}
	if err := r.paths.Allow(parsed); err != nil {
		return nil, fmt.Errorf("%s: %w", text.Quote(path), err)
	}
	expression := jsonpath.New("path").AllowMissingKeys(true)
	if err := expression.Parse("{" + path + "}"); err != nil {
		return nil, fmt.Errorf("%s is no JSON path, such as .status.readyReplicas: %w", text.Quote(path), err)
	}
	results, err := expression.FindResults(r.object.Object)
	switch {
	case err != nil && !strings.HasPrefix(path, "."):
		return nil, fmt.Errorf("%s: %w; a path begins with a dot, such as .status.readyReplicas", text.Quote(path), err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", text.Quote(path), err)
	}
	for _, result := range results {
		for _, value := range result {
			if value.IsValid() && value.CanInterface() {
				found = append(found, value.Interface())
			}
		}
	}
	return found, nil
}

// typed gives a value its type. Several are a list.
func (r *reader) typed(all []any) (workv1.FieldValue, error) {
	var found any = all
	if len(all) == 1 {
		found = all[0]
	}
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
		return workv1.FieldValue{}, errors.New("it is no integer, string or boolean, and other values are reported only with the feature gate " +
			"RawFeedbackJsonString of the agent")
	}
	text, err := encode(all, r.maxJSONRaw)
	if err != nil {
		return workv1.FieldValue{}, err
	}
	return workv1.FieldValue{Type: workv1.JSONRaw, JSONRaw: &text}, nil
}

// encode writes one value, or a list of several as far as the limit: the results of a path may overlap, and be together far larger than the
// object.
func encode(values []any, limit int) (string, error) {
	if len(values) == 1 {
		text, err := encodeOne(values[0])
		if err == nil && len(text) > limit {
			err = fmt.Errorf("it has %d bytes of JSON, and %d is the limit; ask for a part of it", len(text), limit)
		}
		return text, err
	}
	var all []string
	size := len("[]")
	for _, value := range values {
		text, err := encodeOne(value)
		if err != nil {
			return "", err
		}
		all = append(all, text)
		if size += len(text); size+len(all)-1 > limit {
			return "", fmt.Errorf("they are %d values with more than %d bytes of JSON, which is the limit; ask for a part of them", len(values),
				limit)
		}
	}
	return "[" + strings.Join(all, ",") + "]", nil
}

// encodeOne writes JSON for people: without escapes for HTML.
func encodeOne(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}
