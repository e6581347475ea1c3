package merge

import (
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Run(m)) }
