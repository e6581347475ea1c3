// Package reach tries the ways into clusters through the hub: tunnels, the gateway, accounts on clusters and their inventory.
package reach

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }
