package hub_test

import (
	"testing"

	"github.com/capstan-io/capstan/internal/hub"
)

// A reconcile that waits for ever would cost one of its controller's workers, and nobody would hear of it.
func TestReconcilesEnd(t *testing.T) {
	t.Parallel()
	if hub.ManagerOptions().Controller.ReconciliationTimeout <= 0 {
		t.Error("a reconcile may take for ever")
	}
}
