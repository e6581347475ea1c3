package etcd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.NoFsync = true
	o.Logger = logr.Discard()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func client(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// SC-10: what was written before a stop is there after the next start.
func TestKeepsDataAcrossRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx := context.Background()

	s := start(t, Options{Dir: dir})
	if _, err := client(t, s).Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Close()

	s = start(t, Options{Dir: dir})
	defer s.Close()
	got, err := client(t, s).Get(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" {
		t.Fatalf("after the restart: got %v, want k=v", got.Kvs)
	}
}

// SC-10: a log long enough to be compacted in memory while it is replayed is no obstacle to the election after a start.
func TestRestartsOnLongLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx := context.Background()

	s := start(t, Options{Dir: dir})
	c := client(t, s)
	for i := range 1000 {
		if _, err := c.Put(ctx, "k", strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	for range 10 {
		s = start(t, Options{Dir: dir})
		s.Close()
	}
}

// A start that is called off ends as that, and leaves data that the next one finds.
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{Dir: dir, NoFsync: true, Logger: logr.Discard()}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want a cancellation", err)
	}
	start(t, Options{Dir: dir}).Close()
}

// SC-10: a second member on the same data is refused at once, with who has it, and the first one keeps its socket. After its end, the data
// is free.
func TestDataInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, Options{Dir: dir})
	_, err := Start(t.Context(), Options{Dir: dir, NoFsync: true, Logger: logr.Discard()})
	if want := dir + " is in use by process " + strconv.Itoa(os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if _, err := client(t, s).Put(t.Context(), "k", "v"); err != nil {
		t.Errorf("the first one does not answer: %v", err)
	}
	s.Close()
	start(t, Options{Dir: dir}).Close()
}

// A start that waits for who reads the database by other means ends when it is called off.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, Options{Dir: dir}).Close()
	database, err := syscall.Open(filepath.Join(dir, "member-data", "member", "snap", "db"), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err == nil {
		// It is locked for good: what etcd has begun would go on otherwise, in a folder that is gone.
		err = syscall.Flock(database, syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, Options{Dir: dir, NoFsync: true, Logger: logr.Discard()}); err == nil || ctx.Err() == nil {
		t.Errorf("got %v", err)
	}
}

// Data that cannot be used is an error that says so, and not the end of the process.
func TestBrokenDataIsAnError(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"snap/db", "wal/*.wal"} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "etcd-broken-") //nolint:usetesting // what etcd began before it failed may still be writing there when the test ends
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			start(t, Options{Dir: dir}).Close()
			files, err := filepath.Glob(filepath.Join(dir, "member-data", "member", pattern))
			if err != nil || len(files) != 1 {
				t.Fatalf("files %v, %v", files, err)
			}
			if err := os.WriteFile(files[0], []byte(strings.Repeat("broken", 10000)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Start(t.Context(), Options{Dir: dir, NoFsync: true, Logger: logr.Discard()})
			if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "restore the folder from a backup") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Data in which the member does not find itself, as old versions of etcdctl restore it from a snapshot, is distinguished from data that can
// be used, and does not keep the hub from ending.
func TestDataOfAnotherMember(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, Options{Dir: dir}).Close()
	db, err := bbolt.Open(filepath.Join(dir, "member-data", "member", "snap", "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		members := tx.Bucket([]byte("members"))
		own, member := members.Cursor().First()
		another := []byte(strings.Repeat("1", len(own)))
		return errors.Join(members.Put(another, bytes.Clone(member)), members.Delete(own))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Options{Dir: dir, NoFsync: true, Logger: logr.Discard()})
	if err == nil || !strings.Contains(err.Error(), dir) ||
		!strings.Contains(err.Error(), "--name hub --initial-cluster hub=http://127.0.0.1:2380") {
		t.Errorf("got %v", err)
	}
}

// A data directory deeper than a socket address can name still works, and leaves nothing behind.
func TestLongDataDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	s := start(t, Options{Dir: dir})
	socket := strings.TrimPrefix(s.Endpoint(), "unix://")
	if len(socket) > maxSocketPath {
		t.Errorf("socket path has %d bytes: %s", len(socket), socket)
	}
	if _, err := client(t, s).Put(context.Background(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("the temporary socket directory is still there: %v", err)
	}
}

// The socket gives full access to the data: nobody else may reach it.
func TestSocketIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "etcd")
	s := start(t, Options{Dir: dir})
	defer s.Close()
	info, err := os.Stat(filepath.Dir(strings.TrimPrefix(s.Endpoint(), "unix://")))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("socket directory has mode %o, want 700", info.Mode().Perm())
	}
}

// SC-10: the TCP ports never come without mutual TLS.
func TestPortsNeedTLS(t *testing.T) {
	t.Parallel()
	if _, err := Start(t.Context(), Options{Dir: t.TempDir(), ClientPort: 1, Logger: logr.Discard()}); err == nil {
		t.Fatal("started with a TCP port and no certificates")
	}
}
