// Package docs holds pages of the documentation against the code.
package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const conformancePage = "conformance.md"

var (
	rowIDs   = regexp.MustCompile(`\b(?:[A-Z]{2}-[0-9]{2}|[AOPRW][12]?[0-9])\b`)
	idRanges = regexp.MustCompile(`\b([A-Z]{2}-)([0-9]{2}) to ([A-Z]{2}-)([0-9]{2})\b`)
	rowID    = regexp.MustCompile(`^([A-Z]{1,2})-?([0-9]{1,2})$`)
	testName = regexp.MustCompile("^`(.+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`$")
)

// statuses are what the column Capstan may begin with.
var statuses = map[string]struct{ wantsTests, wantsReason bool }{
	"yes":      {wantsTests: true},
	"differs":  {wantsTests: true, wantsReason: true},
	"partly":   {wantsTests: true, wantsReason: true},
	"untested": {},
	"not yet":  {},
	"n/a":      {wantsReason: true},
}

// row is a row of the page.
type row struct {
	line               int
	id, status, reason string
	tests              []string
}

// TestConformance keeps the page and the tests in step: rows have a known status and the tests that prove it, these tests
// cite the row, what tests cite has a row, and no row is left out.
func TestConformance(t *testing.T) {
	t.Parallel()
	rows := readRows(t)
	checkNumbers(t, rows)
	functions, cited := readTests(t)
	known := map[string]bool{}
	for _, r := range rows {
		if known[r.id] {
			t.Errorf("%s:%d: %s has a row already", conformancePage, r.line, r.id)
		}
		known[r.id] = true
		checkStatus(t, r)
		checkTests(t, r, functions)
	}
	for _, id := range slices.Sorted(maps.Keys(cited)) {
		if !known[id] {
			t.Errorf("%s cites %s, which has no row in docs/%s", cited[id], id, conformancePage)
		}
	}
}

// readRows reads the rows of all tables of the page. Within a table they are sorted.
func readRows(t *testing.T) (rows []row) {
	t.Helper()
	content, err := os.ReadFile(conformancePage)
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	for i, line := range strings.Split(string(content), "\n") {
		if strings.HasPrefix(line, "#") {
			before = ""
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		match := rowID.FindStringSubmatch(strings.TrimSpace(cells[0]))
		if !strings.HasPrefix(line, "| ") || match == nil {
			continue
		}
		if len(cells) != 4 {
			t.Fatalf("%s:%d: %d columns, want ID, behaviour, status and tests", conformancePage, i+1, len(cells))
		}
		// By number: the second of an area comes before its tenth.
		place := match[1] + strings.Repeat("0", 2-len(match[2])) + match[2]
		if place < before {
			t.Errorf("%s:%d: %s is out of order", conformancePage, i+1, match[0])
		}
		before = place
		status, reason, _ := strings.Cut(strings.TrimSpace(cells[2]), ":")
		r := row{line: i + 1, id: match[0], status: status, reason: strings.TrimSpace(reason)}
		if tests := strings.TrimSpace(cells[3]); tests != "" {
			r.tests = strings.Split(tests, ", ")
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no rows", conformancePage)
	}
	return rows
}

// checkNumbers finds rows that are left out: those of an area are numbered from 01, and a gap ends at the next ten. Of the limits of the
// original, which have a letter, only some have rows.
func checkNumbers(t *testing.T, rows []row) {
	t.Helper()
	last := map[string]int{}
	for _, r := range rows {
		area, digits, isBehaviour := strings.Cut(r.id, "-")
		if !isBehaviour {
			continue
		}
		number, _ := strconv.Atoi(digits)
		next, nextTen := last[area]+1, (last[area]/10+1)*10
		if number != next && number != nextTen {
			t.Errorf("%s:%d: before %s, there is no row for %s-%02d", conformancePage, r.line, r.id, area, next)
		}
		last[area] = number
	}
}

func checkStatus(t *testing.T, r row) {
	t.Helper()
	status, known := statuses[r.status]
	switch {
	case !known:
		t.Errorf("%s:%d: status %q of %s is none of %q", conformancePage, r.line, r.status, r.id, slices.Sorted(maps.Keys(statuses)))
	case status.wantsReason && r.reason == "":
		t.Errorf("%s:%d: %s is %q without saying how", conformancePage, r.line, r.id, r.status)
	case status.wantsTests && len(r.tests) == 0:
		t.Errorf("%s:%d: %s is %q and names no test; without one it is \"untested\"", conformancePage, r.line, r.id, r.status)
	case !status.wantsTests && len(r.tests) > 0:
		t.Errorf("%s:%d: %s is %q and names tests", conformancePage, r.line, r.id, r.status)
	}
}

func checkTests(t *testing.T, r row, functions map[string]map[string]bool) {
	t.Helper()
	for _, name := range r.tests {
		match := testName.FindStringSubmatch(name)
		if match == nil {
			t.Errorf("%s:%d: %s of %s is not written as `package.Test`", conformancePage, r.line, name, r.id)
			continue
		}
		cites, exists := functions[match[1]+"."+match[2]]
		switch {
		case !exists:
			t.Errorf("%s:%d: there is no %s in %s", conformancePage, r.line, match[2], match[1])
		case !cites[r.id]:
			t.Errorf("%s:%d: no comment of %s in %s cites %s", conformancePage, r.line, match[2], match[1], r.id)
		}
	}
}

// readTests reads all test files. functions are the tests as folder.Name, with the IDs that their comments cite; cited are
// all IDs in comments, with a file that cites them.
func readTests(t *testing.T) (functions map[string]map[string]bool, cited map[string]string) {
	t.Helper()
	functions, cited = map[string]map[string]bool{}, map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name := entry.Name(); name == "testdata" || name != ".." && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		path = filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		for id := range citedIn(file.Comments) {
			cited[id] = path
		}
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok {
				functions[filepath.ToSlash(filepath.Dir(path))+"."+function.Name.Name] = citedIn(commentsOf(file, function))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return functions, cited
}

// commentsOf are the comments above and inside of a function.
func commentsOf(file *ast.File, function *ast.FuncDecl) (comments []*ast.CommentGroup) {
	for _, comment := range file.Comments {
		if comment == function.Doc || comment.Pos() > function.Pos() && comment.End() < function.End() {
			comments = append(comments, comment)
		}
	}
	return comments
}

// citedIn are the IDs in comments, with those in between where it says "WK-20 to WK-23".
func citedIn(comments []*ast.CommentGroup) map[string]bool {
	ids := map[string]bool{}
	for _, comment := range comments {
		text := strings.Join(strings.Fields(comment.Text()), " ")
		for _, id := range rowIDs.FindAllString(text, -1) {
			ids[id] = true
		}
		for _, match := range idRanges.FindAllStringSubmatch(text, -1) {
			first, _ := strconv.Atoi(match[2])
			last, _ := strconv.Atoi(match[4])
			for number := first; match[1] == match[3] && number <= last; number++ {
				ids[fmt.Sprintf("%s%02d", match[1], number)] = true
			}
		}
	}
	return ids
}
