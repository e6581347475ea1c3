package cli_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// followedFile has a line for each place in which a text advises a command, below the file that the place is in: the command, with 1 for
// each part that is not constant, and one of
//
//   - the test that provokes the text, runs the command and sees that it helps, as FOLDER.NAME
//   - "no advice", for a command that is only named
//   - "no test: " and the reason why no test can run it
const followedFile = "testdata/advice-followed.txt"

// CA-04: every command that a message, a condition, an event or a help text advises is run by a test, or it is written down why not.
// Examples in the help of commands are no advice: TestAdvice parses them.
func TestAdviceIsFollowed(t *testing.T) {
	t.Parallel()
	advised := map[string]int{}
	for _, root := range rootsOfTexts {
		for _, text := range textsBelow(t, root) {
			for program := range programs {
				for _, command := range commandsIn(program, text.content) {
					if !text.example {
						advised[text.file+": "+program+" "+command]++
					}
				}
			}
		}
	}
	followed := readFollowed(t)
	for _, advice := range slices.Sorted(maps.Keys(advised)) {
		if want, got := advised[advice], len(followed[advice]); got != want {
			t.Errorf("%s: advised in %d places, and %s has %d lines for it", advice, want, followedFile, got)
		}
	}
	tests := testsOf{}
	for _, advice := range slices.Sorted(maps.Keys(followed)) {
		if advised[advice] == 0 {
			t.Errorf("%s: in %s, and advised nowhere", advice, followedFile)
		}
		for _, by := range followed[advice] {
			if by == "no advice" || strings.HasPrefix(by, "no test: ") {
				continue
			}
			folder, name := by[:strings.LastIndex(by, ".")+1], by[strings.LastIndex(by, ".")+1:]
			if !slices.Contains(tests.in(t, strings.TrimSuffix(folder, ".")), name) {
				t.Errorf("%s: there is no test %s", advice, by)
			}
		}
	}
}

// readFollowed reads what becomes of each advice, by FILE: COMMAND.
func readFollowed(t *testing.T) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(followedFile)
	if err != nil {
		t.Fatal(err)
	}
	followed, file := map[string][]string{}, ""
	for line := range strings.SplitSeq(string(content), "\n") {
		command, by, isAdvice := strings.Cut(line, " -> ")
		switch {
		case line == "":
		case isAdvice:
			advice := file + ": " + strings.TrimSpace(command)
			followed[advice] = append(followed[advice], by)
		default:
			file = line
		}
	}
	return followed
}

// testsOf are the names of the tests of folders, as far as they have been read.
type testsOf map[string][]string

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func (o testsOf) in(t *testing.T, folder string) []string {
	t.Helper()
	if names, read := o[folder]; read {
		return names
	}
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testFunction.FindAllStringSubmatch(string(content), -1) {
			o[folder] = append(o[folder], match[1])
		}
	}
	return o[folder]
}
