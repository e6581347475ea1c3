// Package install tests hubs and agents that operators and charts install, and hubs in clusters that exist.
package install

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) {
	os.Exit(framework.Run(m, framework.Shared{Hub: true, Managed: true}))
}
