package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/capstan-io/capstan/internal/controlplane/etcd"
)

// restorable is a backup with the database of an etcd.
func restorable(t *testing.T, prepare func(*Source)) []byte {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s := newSource(t)
	s.Snapshot = func() Snapshot { return server.Snapshot() }
	if prepare != nil {
		prepare(s)
	}
	return written(t, s)
}

// expectNoHub fails unless there is nothing of a hub, nor of what was to be one.
func expectNoHub(t *testing.T, to Target) {
	t.Helper()
	entries, err := os.ReadDir(to.DataDir)
	if err != nil || len(entries) != 1 { // the lock
		t.Errorf("the data directory has %v, %v", entries, err)
	}
	entries, err = os.ReadDir(to.EtcdDir)
	if len(entries) != 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of the etcd has %v, %v", entries, err)
	}
}

// A restored hub is to withhold its works where that was requested. A restore that fails leaves nothing that has the next one do so.
func TestHoldWorks(t *testing.T) {
	t.Parallel()
	whole := restorable(t, nil)
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
		"the backup has no keys": {content: restorable(t, func(s *Source) { s.KeysDir = t.TempDir() }), suspend: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := Target{DataDir: t.TempDir(), EtcdDir: t.TempDir(), Prefix: "/registry", SuspendWorks: test.suspend}
			if test.prepare != nil {
				if err := test.prepare(to); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, err := Restore(t.Context(), bytes.NewReader(test.content), to); (err != nil) != test.fails {
				t.Errorf("restoring ends with %v", err)
			}
			_, err := os.Stat(SuspendWorksFile(to.DataDir))
			if suspended := err == nil; suspended != (test.suspend && !test.fails) || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the hub is told to hold its works: %t, %v", suspended, err)
			}
			if test.fails {
				expectNoHub(t, to)
			}
		})
	}
}

// A restored hub has revisions that clients have not seen, also if the same backup was restored before.
func TestRevisionBump(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	restored := first.UnixMicro() + 1000 // is in a backup of the hub that was restored first
	for name, test := range map[string]struct {
		backup int64
		now    time.Time
		want   int64
	}{
		"the first time":                 {backup: 1000, now: first, want: first.UnixMicro()},
		"the same backup again":          {backup: 1000, now: first.Add(time.Minute), want: first.Add(time.Minute).UnixMicro()},
		"a backup of the restored hub":   {backup: restored, now: first.Add(time.Hour), want: first.Add(time.Hour).UnixMicro()},
		"a backup of it, soon after":     {backup: restored, now: first.Add(time.Minute), want: restored + leastBump},
		"a backup of it, by a set clock": {backup: restored, now: first.Add(-24 * time.Hour), want: restored + leastBump},
	} {
		if now := test.backup + int64(revisionBump(test.backup, test.now)); now != test.want {
			t.Errorf("%s: the hub goes on from %d, want %d", name, now, test.want)
		}
	}
}

// A backup whose storage is damaged is not restored, although it is what the hub has sent.
func TestRestoreOfADamagedStorage(t *testing.T) {
	t.Parallel()
	whole := restorable(t, func(s *Source) {
		content := newStorage(t, &bbolt.Options{NoFreelistSync: true})
		clear(pagesOf(content, leafPage)[0])
		s.Snapshot = func() Snapshot { return database(content) }
	})
	to := Target{DataDir: t.TempDir(), EtcdDir: t.TempDir(), Prefix: "/registry", SuspendWorks: true}
	if _, _, err := Restore(t.Context(), bytes.NewReader(whole), to); err == nil || !strings.Contains(err.Error(), "it is damaged") {
		t.Errorf("it ends with %v", err)
	}
	expectNoHub(t, to)
}

// A restore that is interrupted ends, and leaves nothing.
func TestInterruptedRestore(t *testing.T) {
	t.Parallel()
	whole := restorable(t, nil)
	for name, at := range map[string]int{"at the start": 0, "halfway": len(whole) / 2, "when all is read": len(whole)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			interruption := readerFunc(func([]byte) (int, error) {
				interrupt()
				return 0, io.EOF
			})
			content := io.MultiReader(bytes.NewReader(whole[:at]), interruption, bytes.NewReader(whole[at:]))
			to := Target{DataDir: t.TempDir(), EtcdDir: t.TempDir(), Prefix: "/registry", SuspendWorks: true}
			if _, _, err := Restore(ctx, content, to); !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
			expectNoHub(t, to)
		})
	}
}

// What a killed restore has left has keys and Secrets: the next one removes it, and nothing else. Whether a hub that is there is to hold
// its works is for that hub.
func TestRestoreRemovesLeftovers(t *testing.T) {
	t.Parallel()
	for name, hub := range map[string]bool{"without a hub": false, "with a hub": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := Target{DataDir: t.TempDir(), EtcdDir: t.TempDir(), Prefix: "/registry"}
			left := []string{filepath.Join(to.DataDir, stagingPrefix+"1"), filepath.Join(to.EtcdDir, stagingPrefix+"2")}
			others := []string{filepath.Join(to.DataDir, "restore-1"), filepath.Join(to.EtcdDir, "lost+found")}
			if hub {
				others = append(others, filepath.Join(to.DataDir, keysFolder))
			}
			for _, folder := range slices.Concat(left, others) {
				if err := os.MkdirAll(filepath.Join(folder, "files"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			marker := SuspendWorksFile(to.DataDir)
			if err := os.WriteFile(marker, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Restore(t.Context(), bytes.NewReader(nil), to); err == nil {
				t.Error("nothing was restored without an error")
			}
			stays := others
			if hub {
				stays = append(stays, marker)
			}
			for _, path := range slices.Concat(left, others, []string{marker}) {
				_, err := os.Stat(path)
				if there := err == nil; there != slices.Contains(stays, path) {
					t.Errorf("%s is there: %t", path, there)
				}
			}
		})
	}
}

// After a power failure there are no keys without the objects that they are for, nor without the mark that the hub is to hold its works:
// those are on the disk before the keys are put in place. If the disk fails, there is nothing.
func TestRestoreSurvivesPowerFailures(t *testing.T) {
	t.Parallel()
	whole := restorable(t, nil)
	steps := []string{"etcd: member-data", "data: member-data hold-works", "data: member-data hold-works cert"}
	for failing := range len(steps) + 1 {
		t.Run(fmt.Sprint("failing at ", failing), func(t *testing.T) {
			t.Parallel()
			to := Target{DataDir: t.TempDir(), EtcdDir: t.TempDir(), Prefix: "/registry", SuspendWorks: true}
			var folders, done []string
			to.sync = func(folder string) error {
				switch folder {
				case to.EtcdDir:
					done = append(done, "etcd:"+present(to))
				case to.DataDir:
					done = append(done, "data:"+present(to))
				default:
					folders = append(folders, filepath.Base(folder))
					return nil
				}
				if len(done) == failing+1 {
					return errors.New("input/output error")
				}
				return nil
			}
			_, _, err := Restore(t.Context(), bytes.NewReader(whole), to)
			if want := steps[:min(failing+1, len(steps))]; !slices.Equal(done, want) {
				t.Errorf("on the disk are %q, want %q", done, want)
			}
			if failing < len(steps) {
				if err == nil {
					t.Error("the hub is restored")
				}
				expectNoHub(t, to)
				return
			}
			if err != nil {
				t.Error(err)
			}
			slices.Sort(folders)
			if want := []string{"ca-bundle", "cert", "member", "member-data", "snap", "wal"}; !slices.Equal(folders, want) {
				t.Errorf("the folders on the disk are %q, want %q", folders, want)
			}
		})
	}
}

// present are the parts of a hub that are in place, each after a space.
func present(to Target) (parts string) {
	for _, part := range []string{etcd.MemberDir(to.EtcdDir), SuspendWorksFile(to.DataDir), filepath.Join(to.DataDir, keysFolder)} {
		if _, err := os.Stat(part); err == nil {
			parts += " " + filepath.Base(part)
		}
	}
	return parts
}

// A backup whose objects the hub would not find, or would have elsewhere than it looks for them, is not restored.
func TestRestoreForOtherSettings(t *testing.T) {
	t.Parallel()
	onDisk := func(s *Source) { s.EtcdDirectory = "/disk" }
	for name, test := range map[string]struct {
		source  func(*Source)
		target  func(*Target)
		refusal string
	}{
		"the prefix of the hub":  {source: func(s *Source) { s.Prefix = "/hub" }, target: func(to *Target) { to.Prefix = "/hub" }},
		"another prefix":         {source: func(s *Source) { s.Prefix = "/hub" }, refusal: "set etcd.prefix to /hub"},
		"a longer prefix":        {target: func(to *Target) { to.Prefix = "/a/registry" }, refusal: "set etcd.prefix to /registry"},
		"a folder for the etcd":  {source: onDisk, target: func(to *Target) { to.NamedEtcdDir = true }},
		"no folder for the etcd": {source: onDisk, refusal: "by --embedded-etcd-directory /disk, or by --embedded-etcd-directory "},
		"a folder from now on":   {target: func(to *Target) { to.NamedEtcdDir = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := Target{DataDir: t.TempDir(), EtcdDir: t.TempDir(), Prefix: "/registry", SuspendWorks: true}
			if test.target != nil {
				test.target(&to)
			}
			_, _, err := Restore(t.Context(), bytes.NewReader(restorable(t, test.source)), to)
			switch {
			case test.refusal == "":
				if err != nil {
					t.Error(err)
				}
				return
			case err == nil || !strings.Contains(err.Error(), test.refusal):
				t.Errorf("error %v, want %q", err, test.refusal)
			}
			expectNoHub(t, to)
		})
	}
}
