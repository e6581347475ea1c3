// Package works tries ManifestWorks, from the hub to the objects on the cluster and back, with each way in which works travel.
package works

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }
