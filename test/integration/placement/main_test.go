// Package placement tests what needs no more than a hub to choose clusters, and to distribute works to those that are chosen: sets of
// clusters, placements and ManifestWorkReplicaSets.
package placement

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) {
	os.Exit(framework.Run(m, framework.Shared{Hub: true}))
}
