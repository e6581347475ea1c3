// Package registration tries how clusters join a hub, stay on it and leave it, and what their agents may do there: with a real hub, a
// real sandbox cluster and agents between them, each in a process of its own.
package registration

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }
