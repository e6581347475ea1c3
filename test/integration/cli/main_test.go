// Package cli tries the command line against real hubs and clusters. Of the other areas, reach and install run some
// of its commands, too.
package cli

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }
