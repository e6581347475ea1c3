// Package jqbudget lets jq expressions name fields of an object, and nothing that takes memory or time without a bound.
//
// An interpreter of jq can be stopped between two steps, but one step is enough to fill the memory: "a" * 300000000. What is allowed is
// what leads to fields and compares them, and makes nothing that is larger than what it is made from.
package jqbudget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

const (
	// mostResults is how many results an expression may have on one object, and each step of a path counts as one.
	mostResults = 500_000
	// mostParts is how many parts a regular expression may have with its repetitions written out. How long the text is that it is matched
	// with is not known, and to match cannot be stopped.
	mostParts = 200
)

// functions are those that may be called, by their number of arguments. Of some, the argument has to be written down: how long they take
// follows from it.
var functions = map[string]bool{ // whether the argument has to be written down
	"empty/0": false, "error/0": false, "error/1": false, "not/0": false, "length/0": false, "utf8bytelength/0": false, "keys/0": false,
	"keys_unsorted/0": false, "type/0": false,
	"tostring/0": false, "tonumber/0": false, "ascii_downcase/0": false, "ascii_upcase/0": false, "trim/0": false, "ltrim/0": false,
	"rtrim/0": false,
	"first/0": false, "last/0": false, "any/0": false, "all/0": false, "recurse/0": false, "floor/0": false, "ceil/0": false, "abs/0": false,
	"values/0": false, "nulls/0": false, "booleans/0": false, "numbers/0": false, "strings/0": false, "arrays/0": false, "objects/0": false,
	"iterables/0": false, "scalars/0": false, "true/0": false, "false/0": false, "null/0": false,
	"select/1": false, "any/1": false, "all/1": false, "any/2": false, "all/2": false, "first/1": false, "isempty/1": false, "IN/1": false,
	"IN/2":  false,
	"has/1": false, "getpath/1": false, "startswith/1": false, "endswith/1": false, "ltrimstr/1": false, "rtrimstr/1": false,
	"contains/1": true, "inside/1": true, "index/1": true, "rindex/1": true, "split/1": true, "test/1": true, "test/2": true,
}

// Compile compiles an expression that is allowed.
func Compile(expression string) (*gojq.Code, error) {
	query, err := gojq.Parse(expression)
	if err != nil {
		return nil, err
	}
	if err := check(query); err != nil {
		return nil, err
	}
	return gojq.Compile(query) // without an environment, files or inputs to read
}

// CompilePaths compiles an expression so that its results are the paths that it leads to.
func CompilePaths(expression string) (*gojq.Code, error) {
	if _, err := Compile(expression); err != nil {
		return nil, err
	}
	query, err := gojq.Parse("path(" + expression + "\n)")
	if err != nil {
		return nil, err
	}
	return gojq.Compile(query)
}

// Run returns the results of an expression on an object. It fails if there are more than there may be, with those there are until then.
func Run(ctx context.Context, code *gojq.Code, object any) (results []any, err error) {
	all, left := code.RunWithContext(ctx, object), mostResults
	for {
		result, more := all.Next()
		if !more {
			return results, nil
		}
		if err, failed := result.(error); failed {
			return results, err
		}
		path, _ := result.([]any)
		if left -= 1 + len(path); left < 0 {
			return results, &budget.Exceeded{What: "the expression leads to too many fields of the object", Limit: fmt.Sprint(mostResults)}
		}
		results = append(results, result)
	}
}

var deletion = func() *gojq.Code {
	query, err := gojq.Parse("delpaths($paths)")
	if err != nil {
		panic(err) // it is written here
	}
	code, err := gojq.Compile(query, gojq.WithVariables([]string{"$paths"}))
	if err != nil {
		panic(err)
	}
	return code
}()

// Delete returns an object without what is at the paths.
func Delete(ctx context.Context, object any, paths []any) (any, error) {
	result, ok := deletion.RunWithContext(ctx, object, paths).Next()
	if err, failed := result.(error); failed {
		return nil, err
	}
	if !ok {
		return nil, errors.New("it has no result")
	}
	return result, nil
}

func check(q *gojq.Query) error {
	switch {
	case q == nil:
		return nil
	case len(q.FuncDefs) > 0 || len(q.Imports) > 0 || q.Meta != nil:
		return notAllowed("def", "functions of its own")
	case q.Term != nil:
		return checkTerm(q.Term)
	}
	if err := checkOperator(q); err != nil {
		return err
	}
	for _, pattern := range q.Patterns {
		if err := checkPattern(pattern); err != nil {
			return err
		}
	}
	return errors.Join(check(q.Left), check(q.Right))
}

func notAllowed(what, why string) error {
	return fmt.Errorf("an expression that names fields cannot have %s (%s): write one such as .spec.containers[] | select(.name == \"proxy\") | .image", why, what)
}

// checkOperator allows arithmetic with something that is written down, which adds no more than that.
func checkOperator(q *gojq.Query) error {
	switch q.Op {
	case gojq.OpPipe, gojq.OpComma, gojq.OpAlt, gojq.OpAnd, gojq.OpOr, gojq.OpEq, gojq.OpNe, gojq.OpGt, gojq.OpLt, gojq.OpGe, gojq.OpLe:
		return nil
	case gojq.OpAdd, gojq.OpSub, gojq.OpDiv, gojq.OpMod:
		if isConstant(q.Left) || isConstant(q.Right) {
			return nil
		}
		return notAllowed(q.Op.String(), "arithmetic with two values that are not constant")
	default:
		return notAllowed(q.Op.String(), "this operator")
	}
}

func checkPattern(p *gojq.Pattern) error {
	if p == nil {
		return nil
	}
	for _, element := range p.Array {
		if err := checkPattern(element); err != nil {
			return err
		}
	}
	for _, entry := range p.Object {
		if err := errors.Join(check(entry.KeyQuery), checkString(entry.KeyString), checkPattern(entry.Val)); err != nil {
			return err
		}
	}
	return nil
}

func checkTerm(t *gojq.Term) error {
	for _, suffix := range t.SuffixList {
		if err := checkIndex(suffix.Index); err != nil {
			return err
		}
	}
	switch t.Type {
	case gojq.TermTypeIdentity, gojq.TermTypeRecurse, gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
		return nil
	case gojq.TermTypeIndex:
		return checkIndex(t.Index)
	case gojq.TermTypeString:
		return checkString(t.Str)
	case gojq.TermTypeUnary:
		return checkTerm(t.Unary.Term)
	case gojq.TermTypeQuery:
		return check(t.Query)
	case gojq.TermTypeTry:
		return errors.Join(check(t.Try.Body), check(t.Try.Catch))
	case gojq.TermTypeIf:
		return checkIf(t.If)
	case gojq.TermTypeFunc:
		return checkFunction(t.Func)
	case gojq.TermTypeArray:
		if t.Array.Query == nil || isConstant(t.Array.Query) {
			return nil
		}
		return notAllowed("[…]", "an array of what is not constant")
	default:
		return notAllowed(t.String(), "what makes new values or loops")
	}
}

func checkIndex(i *gojq.Index) error {
	if i == nil {
		return nil
	}
	return errors.Join(checkString(i.Str), check(i.Start), check(i.End))
}

func checkString(s *gojq.String) error {
	if s != nil && len(s.Queries) > 0 {
		return notAllowed(`\(…)`, "texts with values in them")
	}
	return nil
}

func checkIf(i *gojq.If) error {
	all := []*gojq.Query{i.Cond, i.Then, i.Else}
	for _, other := range i.Elif {
		all = append(all, other.Cond, other.Then)
	}
	for _, q := range all {
		if err := check(q); err != nil {
			return err
		}
	}
	return nil
}

func checkFunction(f *gojq.Func) error {
	if strings.HasPrefix(f.Name, "$") {
		return nil // a variable
	}
	literal, known := functions[fmt.Sprintf("%s/%d", f.Name, len(f.Args))]
	if !known {
		return notAllowed(f.Name, "this function")
	}
	for _, argument := range f.Args {
		if literal && !isConstant(argument) {
			return fmt.Errorf("the argument of %s has to be written down in the expression, as a text, number or list", f.Name)
		}
		if err := check(argument); err != nil {
			return err
		}
	}
	if f.Name == "test" {
		return checkTest(f.Args[0])
	}
	return nil
}

func checkTest(pattern *gojq.Query) error {
	if pattern.Term == nil || pattern.Term.Str == nil {
		return nil // no text: it fails
	}
	if err := budget.Regexp(pattern.Term.Str.Str); err != nil {
		return err
	}
	return budget.Count("parts of the regular expression, with its repetitions written out", budget.RegexpParts(pattern.Term.Str.Str),
		mostParts)
}

// isConstant reports whether a query is written down: a text, a number, or a list of such.
func isConstant(q *gojq.Query) bool {
	if q == nil || len(q.FuncDefs) > 0 || len(q.Patterns) > 0 {
		return false
	}
	if q.Op == gojq.OpComma {
		return isConstant(q.Left) && isConstant(q.Right)
	}
	return q.Term != nil && isConstantTerm(q.Term)
}

func isConstantTerm(t *gojq.Term) bool {
	if len(t.SuffixList) > 0 {
		return false
	}
	switch t.Type {
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
		return true
	case gojq.TermTypeString:
		return len(t.Str.Queries) == 0
	case gojq.TermTypeUnary:
		return isConstantTerm(t.Unary.Term)
	case gojq.TermTypeQuery:
		return isConstant(t.Query)
	case gojq.TermTypeArray:
		return t.Array.Query == nil || isConstant(t.Array.Query)
	case gojq.TermTypeFunc:
		return len(t.Func.Args) == 0 && slices.Contains([]string{"null", "true", "false"}, t.Func.Name)
	}
	return false
}
