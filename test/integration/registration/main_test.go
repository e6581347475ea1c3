// Package registration tests how clusters join a hub, stay and leave, and what their agents may do there. The hub, the cluster and the
// agents between them are processes of their own.
package registration

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) {
	os.Exit(framework.Run(m, framework.Shared{Hub: true, Managed: true}))
}
