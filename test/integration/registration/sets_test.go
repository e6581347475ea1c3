package registration

import (
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

// WH-16: who deletes a set that is in use, or makes one that selects nothing, is warned.
func TestSetWarnings(t *testing.T) {
	t.Parallel()
	framework.CheckSetWarnings(t, framework.Hub, "set-warned")
}
