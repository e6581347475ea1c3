package docs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"

	"github.com/capstan-io/capstan/internal/featuregates"
)

var gateRow = regexp.MustCompile("(?m)^\\| `([A-Za-z0-9]+)` \\| ([a-z]+) \\| (true|false) \\| (?:true|false) \\| (.*) \\|$")

// TestFeatureGates keeps docs/feature-gates.md and the gates of the programs in step: each has one row with its stage and default, and
// the page says of exactly those that change nothing that they are accepted.
func TestFeatureGates(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("feature-gates.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(content), "\n## Gates of the hub\n")
	hub, agents, found := strings.Cut(tables, "\n## Gates of agents\n")
	if !found {
		t.Fatal("feature-gates.md lacks the headings of its tables")
	}
	checkGates(t, "hub", hub, featuregates.Hub())
	checkGates(t, "agents", agents, featuregates.Agent())
}

func checkGates(t *testing.T, owner, section string, set *featuregates.Set) {
	t.Helper()
	gates := set.GetAll()
	delete(gates, "AllAlpha")
	delete(gates, "AllBeta")
	for _, row := range gateRow.FindAllStringSubmatch(section, -1) {
		name := featuregate.Feature(row[1])
		gate, known := gates[name]
		if !known {
			t.Errorf("feature-gates.md: %s is no gate of %s, or has two rows", name, owner)
			continue
		}
		delete(gates, name)
		if stage := strings.ToLower(string(gate.PreRelease)); row[2] != stage {
			t.Errorf("feature-gates.md: the stage of %s of %s is %s, not %s", name, owner, stage, row[2])
		}
		if isOn := row[3] == "true"; isOn != gate.Default {
			t.Errorf("feature-gates.md: the default of %s of %s is %t", name, owner, gate.Default)
		}
		changesSomething := slices.ContainsFunc(set.Values(), func(value string) bool { return strings.HasPrefix(value, row[1]+"=") })
		if changesSomething == strings.HasPrefix(row[4], "accepted; ") {
			t.Errorf("feature-gates.md: that %s of %s changes something is %t, and the page says otherwise", name, owner, changesSomething)
		}
	}
	for name := range gates {
		t.Errorf("feature-gates.md has no row for %s of %s", name, owner)
	}
}
