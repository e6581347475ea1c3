package bootstrap

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/fleet"
)

// RG-25: the events tell why an agent registers, once and not with every attempt.
func TestWhyItRegisters(t *testing.T) {
	t.Parallel()
	var reasons []string
	b := &Bootstrap{
		Identity: identity.Identity{Cluster: "cluster1", Agent: "agent1"},
		Store:    &hubkubeconfig.Store{Dir: t.TempDir()},
		Record:   func(_, reason, _, _ string, _ ...any) { reasons = append(reasons, reason) },
		Clock:    clock.RealClock{},
	}
	attempt := func() {
		t.Helper()
		if credential, err := b.credential(t.Context()); credential != nil || err != nil {
			t.Fatalf("credential %v, error %v", credential, err)
		}
	}
	attempt()
	attempt()
	for _, file := range []string{fleet.KeyKubeconfig, fleet.KeyTLSCert, fleet.KeyTLSKey} {
		if err := os.WriteFile(filepath.Join(b.Store.Dir, file), []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	attempt()
	attempt()
	if want := []string{fleet.EventNoValidCertificateFound, fleet.EventCertificateValidationFailed}; !slices.Equal(reasons, want) {
		t.Errorf("events %q, want %q", reasons, want)
	}
}
