// Package works tests ManifestWorks, from the hub to the objects on the cluster and back, by each way on which they travel.
package works

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) {
	os.Exit(framework.Run(m, framework.Shared{Hub: true, Managed: true}))
}
