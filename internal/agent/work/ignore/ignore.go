// Package ignore selects the fields of an object that a ManifestWork leaves to others (WK-08).
//
// A field can be named by a JSON path, a JSON pointer or a jq expression. All three are brought into one form, a jq path
// expression, so that there is one way to find what they name.
package ignore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// timeout is how long one expression may run on one object.
const timeout = time.Second

// Fields are a selection of fields. The zero value selects none.
type Fields struct{ selections []selection }

// selection is one expression, in the two forms in which it is used.
type selection struct {
	source       string
	without, get *gojq.Code
}

// Error says which expression cannot be used, and why.
type Error struct {
	// Field is the list that the expression is from, such as jsonPaths.
	Field, Expression string
	Err               error
}

func (e *Error) Error() string {
	return fmt.Sprintf("updateStrategy.serverSideApply.ignoreFields: %s %q: %v", e.Field, e.Expression, e.Err)
}

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// Compile reads the entries with one of the conditions. What is wrong with an expression is an *Error.
func Compile(entries []workv1.IgnoreField, conditions ...workv1.IgnoreFieldsCondition) (Fields, error) {
	var fields Fields
	for _, entry := range entries {
		if !isAmong(entry.Condition, conditions) {
			continue
		}
		for _, list := range []struct {
			name        string
			expressions []string
			translate   func(string) (string, error)
		}{
			{"jsonPaths", entry.JSONPaths, fromJSONPath},
			{"jsonPointers", entry.JSONPointers, fromPointer},
			{"jqPathExpressions", entry.JQPathExpressions, func(e string) (string, error) { return e, nil }},
		} {
			for _, e := range list.expressions {
				s, err := compile(e, list.translate)
				if err != nil {
					return Fields{}, &Error{Field: list.name, Expression: e, Err: err}
				}
				s.source = list.name + " " + e
				fields.selections = append(fields.selections, s)
			}
		}
	}
	return fields, nil
}

// isAmong takes an entry without a condition for one of the default, OnSpokePresent.
func isAmong(condition workv1.IgnoreFieldsCondition, conditions []workv1.IgnoreFieldsCondition) bool {
	if condition == "" {
		condition = workv1.IgnoreFieldsConditionOnSpokePresent
	}
	for _, c := range conditions {
		if c == condition {
			return true
		}
	}
	return false
}

func compile(expression string, translate func(string) (string, error)) (selection, error) {
	path, err := translate(expression)
	if err != nil {
		return selection{}, err
	}
	without, err := compileJQ("del(" + path + ")")
	if err != nil {
		return selection{}, err
	}
	get, err := compileJQ("[" + path + "]")
	return selection{without: without, get: get}, err
}

func compileJQ(program string) (*gojq.Code, error) {
	query, err := gojq.Parse(program)
	if err != nil {
		return nil, err
	}
	return gojq.Compile(query) // without an environment, files or inputs to read
}

// Empty tells whether nothing is selected.
func (f Fields) Empty() bool { return len(f.selections) == 0 }

// Without returns a copy of the object that lacks the fields. The identity of the object is not among what can be ignored.
func (f Fields) Without(ctx context.Context, object map[string]any) (map[string]any, error) {
	result := toJQ(object)
	for _, s := range f.selections {
		one, err := run(ctx, s.without, result)
		if err == nil {
			err = sameIdentity(result, one)
		}
		if err != nil {
			name, expression, _ := strings.Cut(s.source, " ")
			return nil, &Error{Field: name, Expression: expression, Err: err}
		}
		result = one
	}
	return fromJQ(result).(map[string]any), nil // run and sameIdentity made sure
}

// Values are what an object has in the fields; where an expression does not apply to the object, there is none.
func (f Fields) Values(ctx context.Context, object map[string]any) []any {
	values := make([]any, len(f.selections))
	for i, s := range f.selections {
		if value, err := run(ctx, s.get, toJQ(object)); err == nil {
			values[i] = value
		}
	}
	return values
}

// run returns the only result of a program.
func run(ctx context.Context, code *gojq.Code, input any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	results := code.RunWithContext(ctx, input)
	result, ok := results.Next()
	if !ok {
		return nil, errors.New("it has no result")
	}
	if err, failed := result.(error); failed {
		return nil, err
	}
	if _, more := results.Next(); more {
		return nil, errors.New("it has more than one result")
	}
	return result, nil
}

func sameIdentity(before, after any) error {
	object, ok := after.(map[string]any)
	if !ok {
		return errors.New("it does not leave an object")
	}
	original, _ := before.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	was, _ := original["metadata"].(map[string]any)
	if object["apiVersion"] != original["apiVersion"] || object["kind"] != original["kind"] ||
		metadata["name"] != was["name"] || metadata["namespace"] != was["namespace"] {
		return errors.New("apiVersion, kind, metadata.name and metadata.namespace cannot be ignored")
	}
	return nil
}

// toJQ copies a decoded object into the types that gojq knows.
func toJQ(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for k, v := range value {
			copied[k] = toJQ(v)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, v := range value {
			copied[i] = toJQ(v)
		}
		return copied
	case int64:
		return int(value)
	default:
		return value
	}
}

// fromJQ copies it back.
func fromJQ(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for k, v := range value {
			copied[k] = fromJQ(v)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, v := range value {
			copied[i] = fromJQ(v)
		}
		return copied
	case int:
		return int64(value)
	default:
		return value
	}
}
