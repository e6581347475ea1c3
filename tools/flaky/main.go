// Command flaky lists the tests that failed and then passed when they were run once more, each with what it printed when it first failed.
// Its arguments are files of events as "go test -json" writes them; files that do not exist have none.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := listFile(path, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "flaky:", err)
			os.Exit(1)
		}
	}
}

func listFile(path string, out io.Writer) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	tests, err := read(file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	list(tests, out)
	return nil
}

// event is documented by "go doc test2json".
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// test is what is known of a test, or of a package where the name is empty.
type test struct {
	pkg, name   string
	output      strings.Builder // of the current run
	failed      bool
	firstOutput string // of the run that failed first
	passed      bool   // in the last run
}

// read has the tests in the order in which they began.
func read(events io.Reader) ([]*test, error) {
	var tests []*test
	byName := map[[2]string]*test{}
	for decoder := json.NewDecoder(events); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return tests, nil
		} else if err != nil {
			return nil, err
		}
		key := [2]string{e.Package, e.Test}
		if byName[key] == nil {
			byName[key] = &test{pkg: e.Package, name: e.Test}
			tests = append(tests, byName[key])
		}
		byName[key].add(e)
	}
}

func (t *test) add(e event) {
	switch e.Action {
	case "run", "start":
		t.output.Reset()
	case "output":
		t.output.WriteString(e.Output)
	case "fail":
		if !t.failed {
			t.failed, t.firstOutput = true, t.output.String()
		}
		t.passed = false
	case "pass":
		t.passed = true
	}
}

func list(tests []*test, out io.Writer) {
	for _, t := range tests {
		if t.name != "" && t.failed && t.passed {
			fmt.Fprintf(out, "FLAKY %s %s\n%s", t.pkg, t.name, t.firstOutput)
		}
	}
}
