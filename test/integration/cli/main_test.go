// Package cli has all tests that run the command line with real hubs and clusters, whatever else they are about.
package cli

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) {
	os.Exit(framework.Run(m, framework.Shared{Hub: true, Managed: true}))
}
