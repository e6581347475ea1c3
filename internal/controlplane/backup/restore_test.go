package backup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/capstan-io/capstan/internal/controlplane/etcd"
)

// A restored hub is to withhold its works where that was requested. A restore that fails leaves nothing that has the next one do so.
func TestHoldWorks(t *testing.T) {
	t.Parallel()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	backup := func(prepare func(*Source)) []byte {
		s := newSource(t)
		s.Snapshot = func() Snapshot { return server.Snapshot() }
		prepare(s)
		return written(t, s)
	}
	whole := backup(func(*Source) {})
	for name, test := range map[string]struct {
		content []byte
		prepare func(Target) error
		suspend bool
		fails   bool
	}{
		"asked for":     {content: whole, suspend: true},
		"not asked for": {content: whole},
		"the storage cannot be made": {content: whole, suspend: true, fails: true, prepare: func(to Target) error {
			return errors.Join(os.Remove(to.EtcdDir), os.Symlink("nowhere", to.EtcdDir))
		}},
		"the backup has no keys": {content: backup(func(s *Source) { s.KeysDir = t.TempDir() }), suspend: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := Target{DataDir: t.TempDir(), EtcdDir: t.TempDir(), SuspendWorks: test.suspend}
			if test.prepare != nil {
				if err := test.prepare(to); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Restore(bytes.NewReader(test.content), to); (err != nil) != test.fails {
				t.Errorf("restoring ends with %v", err)
			}
			_, err := os.Stat(SuspendWorksFile(to.DataDir))
			if suspended := err == nil; suspended != (test.suspend && !test.fails) || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the hub is told to hold its works: %t, %v", suspended, err)
			}
			if !test.fails {
				return
			}
			entries, err := os.ReadDir(to.DataDir)
			if err != nil || len(entries) != 1 { // the lock
				t.Errorf("the folder has %v, %v", entries, err)
			}
			if _, err := os.Stat(etcd.MemberDir(to.EtcdDir)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder of the etcd has a member: %v", err)
			}
		})
	}
}
