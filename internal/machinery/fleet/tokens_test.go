package fleet_test

import (
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AM-40 RG-53
func TestTokenInfrastructureMessage(t *testing.T) {
	t.Parallel()
	const uid = "1e0c6a3b-5b1c-4c57-9f5e-0d7f3f0f4a11"
	message := fleet.TokenInfrastructureReadyMessage("c1", "hello-agent", uid)
	if want := "ServiceAccount c1/hello-agent (UID: " + uid + ") is ready"; message != want {
		t.Errorf("the message is %q, want %q", message, want)
	}
	if got := fleet.TokenInfrastructureUID(message); got != uid {
		t.Errorf("the UID in it is %q", got)
	}
	if got := fleet.TokenInfrastructureUID("not yet"); got != "" {
		t.Errorf("the UID in another is %q", got)
	}
}
