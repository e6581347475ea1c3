// Package ignore selects the fields of an object that a ManifestWork leaves to others.
//
// A field can be named by a JSON path, a JSON pointer or a jq expression. All three are brought into one form, a jq path
// expression, so that what they name is found alike.
package ignore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/budget/jqbudget"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// timeout is how long all expressions of a manifest may run on one object.
const timeout = time.Second

// Fields are a selection of fields. The zero value selects none.
type Fields struct{ selections []selection }

// selection is one expression, in the two forms in which it is used.
type selection struct {
	source     string
	paths, get *gojq.Code
}

// Error says which expression cannot be used, and why.
type Error struct {
	// Field is the list that the expression is from, such as jsonPaths. It is empty if it is not about one expression.
	Field, Expression string
	Err               error
}

func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("updateStrategy.serverSideApply.ignoreFields: %v", e.Err)
	}
	return fmt.Sprintf("updateStrategy.serverSideApply.ignoreFields: %s %s: %v", e.Field, text.Quote(e.Expression), e.Err)
}

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// Compile reads the entries with one of the conditions. What is wrong with an expression is an *Error.
func Compile(entries []workv1.IgnoreField, conditions ...workv1.IgnoreFieldsCondition) (Fields, error) {
	var fields Fields
	if err := count(entries); err != nil {
		return Fields{}, &Error{Err: err}
	}
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

// count fails if the entries have more expressions together than a manifest may have.
func count(entries []workv1.IgnoreField) error {
	n := 0
	for i := range entries {
		n += len(entries[i].JSONPaths) + len(entries[i].JSONPointers) + len(entries[i].JQPathExpressions)
	}
	return budget.Count("expressions", n, budget.FieldExpressions)
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
	if err := budget.Length("the expression", len(expression), budget.FieldExpressionBytes); err != nil {
		return selection{}, err
	}
	path, err := translate(expression)
	if err != nil {
		return selection{}, err
	}
	paths, err := jqbudget.CompilePaths(path)
	if err != nil {
		return selection{}, err
	}
	get, err := jqbudget.Compile(path)
	return selection{paths: paths, get: get}, err
}

// Empty reports whether nothing is selected.
func (f Fields) Empty() bool { return len(f.selections) == 0 }

// Without returns a copy of the object that lacks the fields. The identity of the object is not among what can be ignored.
func (f Fields) Without(ctx context.Context, object map[string]any) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result := toJQ(object)
	for _, s := range f.selections {
		one, err := s.without(ctx, result)
		if err == nil {
			err = sameIdentity(result, one)
		}
		if err != nil {
			name, expression, _ := strings.Cut(s.source, " ")
			return nil, &Error{Field: name, Expression: expression, Err: err}
		}
		result = one
	}
	return fromJQ(result).(map[string]any), nil // sameIdentity made sure
}

func (s selection) without(ctx context.Context, object any) (any, error) {
	paths, err := jqbudget.Run(ctx, s.paths, object)
	if err != nil {
		return nil, err
	}
	return jqbudget.Delete(ctx, object, paths)
}

// Values are what an object has in the fields; where an expression does not apply to the object, there is none.
func (f Fields) Values(ctx context.Context, object map[string]any) []any {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	in, values := toJQ(object), make([]any, len(f.selections))
	for i, s := range f.selections {
		if found, err := jqbudget.Run(ctx, s.get, in); err == nil {
			values[i] = append([]any{}, found...)
		}
	}
	return values
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
