// Package placement tries what chooses clusters and brings works to those that were chosen: sets, placements and
// ManifestWorkReplicaSets, with a real hub.
package placement

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }
