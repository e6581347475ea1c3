package env

import (
	"net"
	"path/filepath"
	"testing"
)

// NewControllers lays out the controllers of a hub for the cluster of a kubeconfig.
func NewControllers(t testing.TB, kubeconfig string, flags ...string) *Process {
	t.Helper()
	return newHubProcess(t, "controllers",
		append([]string{"--kubeconfig", kubeconfig, "--metrics-bind-address", "0", "--placement-debug-bind-address", "0"}, flags...))
}

// NewWebhooks lays out the webhooks of a hub for the cluster of a kubeconfig. They are served at an address with the certificate
// in a folder.
func NewWebhooks(t testing.TB, kubeconfig, address, certDir string, flags ...string) *Process {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return newHubProcess(t, "webhooks",
		append([]string{"--kubeconfig", kubeconfig, "--metrics-bind-address", "0", "--port", port, "--cert-dir", certDir}, flags...))
}

func newHubProcess(t testing.TB, command string, flags []string) *Process {
	t.Helper()
	p := newProcess(filepath.Join(t.TempDir(), command+".log"), "capstan-hub", append([]string{command}, flags...)...)
	p.stopWith(t)
	return p
}
