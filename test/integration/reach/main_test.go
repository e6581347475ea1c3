// Package reach tests how clusters are reached through the hub: by tunnels, by the ClusterGateway, and with tokens of
// ManagedServiceAccounts.
package reach

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) {
	os.Exit(framework.Run(m, framework.Shared{Hub: true, Managed: true}))
}
