// Package addons tests add-ons: how they are configured, rolled out, deployed and registered, and the examples of the documentation.
package addons

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) {
	os.Exit(framework.Run(m, framework.Shared{Hub: true, Managed: true}))
}
