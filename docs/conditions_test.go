package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newTimes are the functions that give a condition a new time although its status stays the same, each with the reason. The list is for
// what clients or rollouts count on; everything else leaves the time to meta.SetStatusCondition.
var newTimes = map[string]string{
	"internal/agent/work/conditions.setWithNewTime": "conditions that rules make, Applied of a manifest, and values that were read anew",
	"internal/hub/addon/addonhealth.propagate":      "the time tells what an add-on says since its cluster was lost",
	"internal/hub/addon/configuration.writeOne":     "the deadline of a rollout counts from there",
	"internal/hub/addon/progress.Record":            "the deadline and the soak time of a rollout count from there",
	"internal/hub/registration/importer.report":     "the time until an import is repeated counts from there",
}

// TestTimesOfConditions goes through all code that writes conditions: their times change with their status, and with nothing else.
func TestTimesOfConditions(t *testing.T) {
	t.Parallel()
	found := map[string]string{}
	for _, root := range []string{"internal", "addon", "cmd", "api"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(source), "Condition") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
			if err != nil {
				return err
			}
			for _, declaration := range file.Decls {
				if function, ok := declaration.(*ast.FuncDecl); ok && renewsTime(function) {
					folder, _ := filepath.Rel("..", filepath.Dir(path))
					found[filepath.ToSlash(folder)+"."+function.Name.Name] = path
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if newTimes[name] == "" {
			t.Errorf("%s: %s sets the time of a condition in a list, or a list; meta.SetStatusCondition does so when the status changes",
				found[name], name)
		}
	}
	for name := range newTimes {
		if found[name] == "" {
			t.Errorf("%s gives no condition a new time any more; leave it out of newTimes", name)
		}
	}
}

// renewsTime tells whether a function sets the time of a condition that is in a list already, or replaces a list by new conditions.
func renewsTime(function *ast.FuncDecl) (renews bool) {
	listed := map[string]bool{} // variables that are conditions in a list
	ast.Inspect(function, func(node ast.Node) bool {
		assignment, ok := node.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for i, left := range assignment.Lhs {
			right := assignment.Rhs[min(i, len(assignment.Rhs)-1)]
			switch left := left.(type) {
			case *ast.Ident:
				listed[left.Name] = isListed(right, listed)
			case *ast.SelectorExpr:
				renews = renews || left.Sel.Name == "LastTransitionTime" && isListed(left.X, listed) ||
					left.Sel.Name == "Conditions" && isNewList(right)
			}
		}
		return true
	})
	return renews
}

// isListed tells whether an expression is a condition in a list: found there by a function, or by its index.
func isListed(expression ast.Expr, listed map[string]bool) bool {
	switch e := expression.(type) {
	case *ast.Ident:
		return listed[e.Name]
	case *ast.UnaryExpr:
		return e.Op == token.AND && isListed(e.X, listed)
	case *ast.IndexExpr:
		return strings.HasSuffix(strings.ToLower(nameOf(e.X)), "conditions")
	case *ast.CallExpr:
		return nameOf(e.Fun) == "FindStatusCondition" || nameOf(e.Fun) == "availability"
	}
	return false
}

// isNewList tells whether an expression is a list of new conditions, or appends one.
func isNewList(expression ast.Expr) bool {
	switch e := expression.(type) {
	case *ast.CompositeLit:
		list, ok := e.Type.(*ast.ArrayType)
		return ok && isCondition(list.Elt) && len(e.Elts) > 0
	case *ast.CallExpr:
		return nameOf(e.Fun) == "append" && slices.ContainsFunc(e.Args, func(argument ast.Expr) bool {
			literal, ok := argument.(*ast.CompositeLit)
			return ok && isCondition(literal.Type)
		})
	}
	return false
}

func isCondition(expression ast.Expr) bool {
	selector, ok := expression.(*ast.SelectorExpr)
	return ok && nameOf(selector.X) == "metav1" && selector.Sel.Name == "Condition"
}

// nameOf is the last name of an identifier or selector.
func nameOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// What TestTimesOfConditions looks for.
func TestRenewsTime(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		`meta.SetStatusCondition(&o.Status.Conditions, c)`:                                                       false,
		`c.LastTransitionTime = now; meta.SetStatusCondition(&o.Status.Conditions, c)`:                           false,
		`meta.FindStatusCondition(o.Status.Conditions, kind).LastTransitionTime = now`:                           true,
		`c := meta.FindStatusCondition(o.Status.Conditions, kind); c.Reason = "x"`:                               false,
		`c := meta.FindStatusCondition(o.Status.Conditions, kind); c.LastTransitionTime = now`:                   true,
		`o.Status.Conditions[i].LastTransitionTime = now`:                                                        true,
		`c := &o.Status.Conditions[i]; c.LastTransitionTime = now`:                                               true,
		`o.Status.Conditions[i].ObservedGeneration = 1`:                                                          false,
		`o.Status.Conditions = []metav1.Condition{{Type: kind}}`:                                                 true,
		`o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: kind})`:                        true,
		`o.Status.Conditions = append(o.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{})`: false,
		`o.Status.Conditions = nil`:                                                                              false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() {\n"+body+"\n}\n", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := renewsTime(file.Decls[0].(*ast.FuncDecl)); got != want {
			t.Errorf("%s: %t, want %t", body, got, want)
		}
	}
}
