package framework

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// Certificate is the certificate of an agent, in PEM.
func Certificate(t *testing.T, agent *env.Agent) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(agent.HubDir, fleet.KeyTLSCert))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
