// Package framework has what the tests of several areas use: the hub and the managed cluster that they share, and functions that make
// objects and wait for what becomes of them.
package framework

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/test/env"
)

// Hub and Managed are a hub and a managed cluster for all tests of an area that do not break them, if the area shares them. Each test has a
// cluster name of its own on the hub, and a namespace of its own on the managed cluster.
var (
	Hub     *env.Server
	Managed *env.Server
)

// Shared says which servers the tests of an area share.
type Shared struct {
	// Hub and Managed are true if there are the servers of these names.
	Hub, Managed bool
}

// Run starts the servers that the tests of an area share, runs the tests, and stops the servers. It returns the exit code, for TestMain.
func Run(m *testing.M, shared Shared) int {
	code, err := run(m, shared)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

func run(m *testing.M, shared Shared) (code int, err error) {
	log.SetLogger(logr.Discard())
	if sharedDir, err = os.MkdirTemp("", "capstan-integration-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(sharedDir)
	defer stopShared()
	if err := startShared(shared); err != nil {
		return 1, err
	}
	return env.Run(m), nil
}

func startShared(shared Shared) (err error) {
	var servers []*env.Server
	if shared.Hub {
		if Hub, err = newShared("hub", func(dir string) (*env.Server, error) { return env.NewHub(dir, "") }); err != nil {
			return err
		}
		servers = append(servers, Hub)
	}
	if shared.Managed {
		if Managed, err = NewSandbox("managed"); err != nil {
			return err
		}
		servers = append(servers, Managed)
	}
	var starting errgroup.Group
	for _, s := range servers {
		starting.Go(func() error {
			if err := s.Start(); err != nil {
				return err
			}
			return s.AwaitReady(context.Background())
		})
	}
	return starting.Wait()
}

// sharedDir has the data of servers that tests share, which are stopped with all else that tests share.
var (
	sharedDir string
	stopped   []interface{ Stop() error }
	sharedMu  sync.Mutex
)

// Share has a server or program stopped when all tests have ended.
func Share(one interface{ Stop() error }) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	stopped = append(stopped, one)
}

// NewSandbox lays out a sandbox cluster that several tests share, without starting it. It is stopped when all tests have ended.
func NewSandbox(name string) (*env.Server, error) { return newShared(name, env.NewSandbox) }

func newShared(name string, layOut func(dir string) (*env.Server, error)) (*env.Server, error) {
	dir := filepath.Join(sharedDir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	server, err := layOut(dir)
	if err == nil {
		Share(server)
	}
	return server, err
}

// stopShared stops last what has been shared first.
func stopShared() {
	for i := range stopped {
		_ = stopped[len(stopped)-1-i].Stop() // tests that care stop servers of their own
	}
}
