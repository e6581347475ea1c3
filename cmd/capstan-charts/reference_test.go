package main

import (
	"testing"

	"github.com/capstan-io/capstan/test/clireference"
)

// TestReference holds docs/reference/cli/capstan-charts.md against the commands.
func TestReference(t *testing.T) {
	clireference.Check(t, newCommand)
}
