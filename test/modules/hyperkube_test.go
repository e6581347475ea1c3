package modules

import (
	"os"
	"regexp"
	"testing"
)

var requirement = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`)

// Where the programs of Kubernetes for tests on real clusters require what Capstan's require, they do so with the same version: otherwise a
// build compiles Kubernetes twice, and the tests do not run with the libraries that the sandbox has.
func TestVersionsOfHyperkube(t *testing.T) {
	t.Parallel()
	ours, theirs := versions(t, "../../go.mod"), versions(t, "../realcluster/hyperkube/go.mod")
	if len(ours) == 0 || theirs["k8s.io/kubernetes"] == "" {
		t.Fatalf("the requirements of the modules could not be read: %d and %d", len(ours), len(theirs))
	}
	for module, version := range theirs {
		if our := ours[module]; our != "" && our != version {
			t.Errorf("test/realcluster/hyperkube/go.mod requires %s %s, but go.mod %s: make them equal and run go mod tidy in both", module, version, our)
		}
	}
}

func versions(t *testing.T, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, match := range requirement.FindAllStringSubmatch(string(content), -1) {
		found[match[1]] = match[2]
	}
	return found
}
