package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
)

// refusal is the error of a hub that must not start.
func refusal(t *testing.T, dir string, change func(*Options)) error {
	t.Helper()
	_, err := writeConfig(dir)
	must(t, err)
	options, err := testOptions(dir)
	if err != nil {
		return err
	}
	options.Etcd.NoFsync = true
	if change != nil {
		change(options)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = Run(ctx, options)
	if err == nil {
		t.Fatal("the hub started")
	}
	return err
}

func says(t *testing.T, err error, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

// A second hub on the same data is refused, and told who has it.
func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte("dataDirectory: "+shared.options.Config.DataDirectory+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, refusal(t, dir, nil), shared.options.Config.DataDirectory, "in use by process "+strconv.Itoa(os.Getpid()))
}

// SC-04: a port that is taken is named, with the field that chooses it.
func TestBusyPort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port, err := writeConfig(dir)
	must(t, err)
	l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port))
	must(t, err)
	defer func() { _ = l.Close() }()
	says(t, refusal(t, dir, nil), strconv.Itoa(port), "apiserver.port", filepath.Join(dir, ocmconfig.FileName))
}

// SC-03: an external etcd that does not answer is told within seconds, by name.
func TestUnreachableEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port, err := freePort()
	must(t, err)
	server := fmt.Sprintf("http://127.0.0.1:%d", port)
	config := fmt.Sprintf("dataDirectory: %s/data\napiserver: {port: %d}\netcd: {mode: external, servers: [%q]}\n", dir, mustPort(t), server)
	must(t, os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte(config), 0o600))
	began := time.Now()
	says(t, refusal(t, dir, nil), server, "etcd.servers", "connection refused")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s to say so", took)
	}
}

// A server that takes connections and says nothing is no etcd.
func TestSilentEtcd(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	server := "http://" + l.Addr().String()
	config := fmt.Sprintf("dataDirectory: %s/data\napiserver: {port: %d}\netcd: {mode: external, servers: [%q]}\n", dir, mustPort(t), server)
	must(t, os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte(config), 0o600))
	says(t, refusal(t, dir, nil), server, "etcd.servers")
}
