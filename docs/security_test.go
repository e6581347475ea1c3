package docs

import (
	"os"
	"regexp"
	"testing"
)

var namedTest = regexp.MustCompile("`([a-z][a-zA-Z0-9/_-]*)\\.(Test[A-Za-z0-9]+)`")

// TestSecurity sees to it that the tests which docs/attackers.md names exist.
func TestSecurity(t *testing.T) {
	t.Parallel()
	const page = "attackers.md"
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	functions, _ := readTests(t)
	named := namedTest.FindAllStringSubmatch(string(content), -1)
	if len(named) == 0 {
		t.Fatalf("%s names no tests", page)
	}
	for _, match := range named {
		if _, exists := functions[match[1]+"."+match[2]]; !exists {
			t.Errorf("%s: there is no %s in %s", page, match[2], match[1])
		}
	}
}
