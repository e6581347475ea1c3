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

// NewAggregatedAPI lays out a process of a hub in the cluster of a kubeconfig, by the name of its command, that serves an aggregated API at
// an address.
func NewAggregatedAPI(t testing.TB, command, kubeconfig, address string, flags ...string) *Process {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return newHubProcess(t, command, append([]string{"--kubeconfig", kubeconfig, "--secure-port", port}, flags...))
}

func newHubProcess(t testing.TB, command string, flags []string) *Process {
	t.Helper()
	p := newProcess(filepath.Join(t.TempDir(), command+".log"), "capstan-hub", append([]string{command}, flags...)...)
	p.StopWith(t)
	return p
}

// NewGRPCServer lays out the gRPC server of a hub for the API of a kubeconfig.
func NewGRPCServer(t testing.TB, kubeconfig string, flags ...string) *Process {
	t.Helper()
	return newHubProcess(t, "grpc-server", append([]string{"--kubeconfig", kubeconfig, "--metrics-bind-address", "0",
		"--health-probe-bind-address", "0"}, flags...))
}
