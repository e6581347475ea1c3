package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCompatibility keeps the versions on docs/compatibility.md in step with the modules that are linked, and sees to it that the tests
// which the page names exist.
func TestCompatibility(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for module, row := range map[string]string{
		"k8s.io/kubernetes":         "| the API server of a standalone hub, and of sandbox clusters | %s |",
		"go.etcd.io/etcd/server/v3": "| the embedded etcd | %s |",
	} {
		match := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(string(modules))
		if match == nil {
			t.Fatalf("go.mod requires no %s", module)
		}
		if want := strings.Replace(row, "%s", match[1], 1); !strings.Contains(string(page), want) {
			t.Errorf("compatibility.md has no row %q", want)
		}
	}
	functions, _ := readTests(t)
	for _, match := range namedTest.FindAllStringSubmatch(string(page), -1) {
		if _, exists := functions[match[1]+"."+match[2]]; !exists {
			t.Errorf("compatibility.md: there is no %s in %s", match[2], match[1])
		}
	}
}
