package celbudget

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

const (
	// mostOptionalMacros is how many optMap and optFlatMap an expression may have: each writes what stands before it twice.
	mostOptionalMacros = 8
	// mostNodes is how many nodes the syntax tree may have, with macros written out. The time to check its types grows with their square.
	mostNodes = 3000
	// mostComputedKeys is how many entries of maps may have a key that is not written down: a map of what is a map to itself has a type twice
	// as large, which is checked part by part.
	mostComputedKeys = 4
)

// checkMacros runs before macros are written out.
func checkMacros(expression string) error {
	return budget.Count("optMap and optFlatMap in a CEL expression", strings.Count(expression, "optMap")+
		strings.Count(expression, "optFlatMap"), mostOptionalMacros)
}

// checkTree runs before types are checked and regular expressions compiled.
func checkTree(root ast.Expr) error {
	w := &walk{}
	w.visit(root)
	return w.err
}

type walk struct {
	nodes, computedKeys int
	err                 error
}

func (w *walk) visit(e ast.Expr) {
	if w.nodes++; w.nodes > mostNodes {
		w.fail(&budget.Exceeded{What: "the CEL expression has too many parts", Limit: "3000 parts"})
	}
	if w.err != nil {
		return
	}
	switch e.Kind() {
	case ast.CallKind:
		w.visitCall(e.AsCall())
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		for _, part := range []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
			w.visit(part)
		}
	case ast.ListKind:
		w.visitAll(e.AsList().Elements())
	case ast.MapKind:
		w.visitMap(e.AsMap())
	case ast.SelectKind:
		w.visit(e.AsSelect().Operand())
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			w.visit(f.AsStructField().Value())
		}
	}
}

func (w *walk) visitAll(all []ast.Expr) {
	for _, e := range all {
		if w.err == nil {
			w.visit(e)
		}
	}
}

func (w *walk) visitCall(call ast.CallExpr) {
	switch call.FunctionName() {
	case "matches", "find", "findAll":
		for _, argument := range call.Args() {
			if text, ok := literal(argument); ok {
				w.fail(budget.Regexp(text))
			}
		}
	}
	if call.IsMemberFunction() {
		w.visit(call.Target())
	}
	w.visitAll(call.Args())
}

func (w *walk) visitMap(m ast.MapExpr) {
	for _, e := range m.Entries() {
		entry := e.AsMapEntry()
		if entry.Key().Kind() != ast.LiteralKind {
			w.computedKeys++
		}
		w.fail(budget.Count("entries of maps with a computed key in a CEL expression", w.computedKeys, mostComputedKeys))
		w.visitAll([]ast.Expr{entry.Key(), entry.Value()})
	}
}

func (w *walk) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}
