// Package install tries hubs and agents that operators and charts install, and hubs next to a cluster that exists.
package install

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }
