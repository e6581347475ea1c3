// Package framework has what the tests of several areas use: a hub and a managed cluster that they share, and objects and waits.
package framework

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/test/env"
)

// Hub and Managed are one hub and one managed cluster, for all tests that do not break them. Each test has a cluster name of its own on the
// hub, and a namespace of its own on the managed cluster.
var Hub, Managed *env.Server

// Run starts the hub and the managed cluster, runs the tests of an area, and stops what they share. It returns the exit code; it is for
// TestMain.
func Run(m *testing.M) int {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M) (code int, err error) {
	log.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "capstan-integration-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	defer stopShared()
	SharedDir = dir
	if Hub, err = env.NewHub(Mkdir(dir, "hub"), ""); err != nil {
		return 1, err
	}
	if Managed, err = env.NewSandbox(Mkdir(dir, "managed")); err != nil {
		return 1, err
	}
	var both errgroup.Group
	for _, s := range []*env.Server{Hub, Managed} {
		both.Go(func() error {
			if err := s.Start(); err != nil {
				return err
			}
			return s.AwaitReady(context.Background())
		})
	}
	defer Hub.Stop()     //nolint:errcheck // tests that care stop servers of their own
	defer Managed.Stop() //nolint:errcheck // the same
	if err := both.Wait(); err != nil {
		return 1, err
	}
	return env.Run(m), nil
}

// SharedDir is of the test binary, and stopped are servers and programs that one test starts and others use, too.
var (
	SharedDir string
	stopped   []interface{ Stop() error }
	sharedMu  sync.Mutex
)

// Share has a server or program stopped when all tests have ended.
func Share(one interface{ Stop() error }) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	stopped = append(stopped, one)
}

func stopShared() {
	for _, one := range stopped {
		_ = one.Stop()
	}
}

// Mkdir makes a folder.
func Mkdir(parent, name string) string {
	dir := parent + "/" + name
	if err := os.Mkdir(dir, 0o700); err != nil {
		panic(err)
	}
	return dir
}
