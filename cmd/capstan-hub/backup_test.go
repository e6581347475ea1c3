package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/controlplane/backup"
)

// A user learns which files a backup does not have, by what names them, and what is lost without that of the encryption.
func TestLacking(t *testing.T) {
	t.Parallel()
	ca := backup.File{Setting: "apiserver.caFile", Path: "/ca.crt"}
	encryption := backup.File{Setting: backup.EncryptionFlag, Path: "/encryption"}
	for name, test := range map[string]struct {
		description backup.Description
		want        []string
	}{
		"nothing": {},
		"a CA":    {backup.Description{Lacks: []backup.File{ca}}, []string{"/ca.crt (apiserver.caFile)"}},
		"encryption": {backup.Description{Lacks: []backup.File{encryption, ca}, Encryption: []string{"aescbc", "kms"}}, []string{
			"/encryption (--encryption-provider-config), without which nobody can read the Secrets, encrypted by aescbc, kms",
			"/ca.crt (apiserver.caFile)",
		}},
		"encryption of which no more is known": {backup.Description{Lacks: []backup.File{encryption}}, []string{
			"/encryption (--encryption-provider-config)",
		}},
	} {
		if got := lacking(&test.description); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The first backup waits until it is due. One that fails is tried again after five minutes, or when the next is due if that is sooner, and
// the interval starts anew.
func TestRepeat(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	for name, test := range map[string]struct {
		due, every time.Duration
		fails      []bool
		want       []time.Duration
	}{
		"none fails":      {0, 6 * time.Hour, []bool{false, false, false}, []time.Duration{0, 6 * time.Hour, 12 * time.Hour}},
		"is due later":    {time.Hour, 6 * time.Hour, []bool{false, false}, []time.Duration{time.Hour, 7 * time.Hour}},
		"later, it fails": {time.Hour, 6 * time.Hour, []bool{true, false}, []time.Duration{time.Hour, 65 * minute}},
		"some fail": {0, time.Hour, []bool{false, true, true, false, false},
			[]time.Duration{0, 60 * minute, 65 * minute, 70 * minute, 130 * minute}},
		"a short interval": {0, minute, []bool{true, false, false}, []time.Duration{0, minute, 2 * minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				began := time.Now()
				var at []time.Duration
				repeat(ctx, began.Add(test.due), test.every, func() error {
					at = append(at, time.Since(began))
					if len(at) == len(test.fails) {
						stop()
					}
					if test.fails[len(at)-1] {
						return errors.New("the hub does not answer")
					}
					return nil
				})
				if !slices.Equal(at, test.want) {
					t.Errorf("backups at %v, want %v", at, test.want)
				}
			})
		})
	}
}

// Who is started again goes on from the last backup in the folder, whatever it was started for.
func TestFirstDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	const fourHoursAgo, longAgo, ahead = "hub-20260501T080000Z.backup", "hub-20260401T000000Z.backup", "hub-20300101T000000Z.backup"
	for name, test := range map[string]struct {
		files []string
		empty string
		in    time.Duration
	}{
		"no backup":                 {nil, "", 0},
		"one within the interval":   {[]string{longAgo, fourHoursAgo}, "", 2 * time.Hour},
		"one just now":              {[]string{"hub-20260501T120000Z.backup"}, "", 6 * time.Hour},
		"one before the interval":   {[]string{longAgo}, "", 0},
		"a clock was ahead":         {[]string{longAgo, fourHoursAgo, ahead}, "", 2 * time.Hour},
		"a clock was always ahead":  {[]string{ahead}, "", 0},
		"an empty file":             {[]string{fourHoursAgo}, "hub-20260501T100000Z.backup", 2 * time.Hour},
		"none of the names is ours": {[]string{fourHoursAgo + ".1.partial", fourHoursAgo + ".sha256", "another.backup"}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := backupFlags{directory: t.TempDir(), every: 6 * time.Hour}
			contents := map[string]string{}
			for _, file := range test.files {
				contents[file] = "a backup"
			}
			if test.empty != "" {
				contents[test.empty] = ""
			}
			for file, content := range contents {
				if err := os.WriteFile(filepath.Join(f.directory, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := f.firstDue(now).Sub(now); got != test.in {
				t.Errorf("the first is due in %s, want %s", got, test.in)
			}
		})
	}
	f := backupFlags{directory: filepath.Join(t.TempDir(), "missing"), every: time.Hour}
	if got := f.firstDue(now); !got.Equal(now) {
		t.Errorf("in a folder that is to be made, the first is due at %s, want %s", got, now)
	}
}

// A service makes room at its start, and goes on with flags that are not right yet.
func TestServiceWithWrongFlags(t *testing.T) {
	t.Parallel()
	kubeconfig, folder := filepath.Join(t.TempDir(), "kubeconfig"), t.TempDir()
	missing := filepath.Join(folder, "missing")
	if err := os.WriteFile(kubeconfig, []byte(kubeconfigFor("https://hub.example.com")), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		kubeconfig string
		passphrase passphraseFile
		want       string
	}{
		"right flags":               {kubeconfig, "", ""},
		"a kubeconfig is missing":   {missing, "", "--kubeconfig"},
		"a passphrase file is, too": {kubeconfig, passphraseFile(missing), "--passphrase-file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory, now := t.TempDir(), time.Now()
			abandoned, long := filepath.Join(directory, "hub-20200101T000000Z.backup.1.partial"), now.Add(-2*abandonedAfter)
			if err := errors.Join(os.WriteFile(filepath.Join(directory, backupName(now)), []byte("a backup"), 0o600),
				os.WriteFile(abandoned, nil, 0o600), os.Chtimes(abandoned, long, long)); err != nil {
				t.Fatal(err)
			}
			f := backupFlags{directory: directory, every: 6 * time.Hour, kubeconfig: test.kubeconfig, passphrase: test.passphrase}
			if err := f.check(); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("it is told %v, want %q", err, test.want)
			}
			ctx, interrupt := context.WithCancel(t.Context())
			interrupt()
			if err := f.run(ctx, nil); err != nil {
				t.Errorf("it ends with %v", err)
			}
			if _, err := os.Stat(abandoned); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s stays: %v", abandoned, err)
			}
		})
	}
}

// A service that is interrupted before a backup is due makes none.
func TestInterruptedBeforeABackup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		repeat(ctx, time.Now().Add(2*time.Hour), time.Hour, func() error {
			t.Error("a backup is made")
			return nil
		})
	})
}

// A backup that is complete is not made again sooner because an older file cannot be removed.
func TestRepeatInAnUntidyFolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		began := time.Now()
		made := 0
		repeat(ctx, began, time.Hour, func() error {
			if made++; made == 2 {
				stop()
			}
			return &untidyError{errors.New("operation not permitted")}
		})
		if took := time.Since(began); took != time.Hour {
			t.Errorf("the second backup is made after %s", took)
		}
	})
}

// Only a backup that is not complete is a failure, for which it would be made again.
func TestUntidyFolderIsNoFailure(t *testing.T) {
	t.Parallel()
	failure := errors.New("the hub does not answer")
	for _, test := range []struct {
		err, want error
		says      string
	}{
		{},
		{err: failure, want: failure},
		{err: &untidyError{errors.New("operation not permitted")}, says: "Error: operation not permitted\n"},
	} {
		var said strings.Builder
		if got := withoutUntidy(&said, test.err); !errors.Is(got, test.want) || said.String() != test.says {
			t.Errorf("%v: returns %v and says %q, want %v and %q", test.err, got, said.String(), test.want, test.says)
		}
	}
}

// The backup that was just written stays, with the last ones before it: those with a later date are of a clock that was wrong. Files with
// other names stay, too.
func TestRemoveOldBackups(t *testing.T) {
	t.Parallel()
	const first, second, third, written = "hub-20260501T000000Z.backup", "hub-20260501T060000Z.backup", "hub-20260501T120000Z.backup",
		"hub-20260501T180000Z.backup"
	const ahead, further = "hub-20300101T000000Z.backup", "hub-20310101T000000Z.backup"
	for name, test := range map[string]struct {
		others  []string
		keep    int
		removed []string
	}{
		"all are kept":               {[]string{first, second, ahead}, 0, nil},
		"the new one alone":          {[]string{first, second}, 1, []string{first, second}},
		"the last two":               {[]string{first, second, third}, 2, []string{first, second}},
		"fewer than are kept":        {[]string{first, second}, 9, nil},
		"a clock was ahead":          {[]string{first, second, ahead, further}, 4, []string{ahead}},
		"a clock is behind":          {[]string{ahead, further}, 1, []string{ahead, further}},
		"names of others sort later": {[]string{first, "hub-before-upgrade.backup"}, 1, []string{first}},
		"names of others sort first": {[]string{"hub-2026-before-upgrade.backup", first}, 1, []string{first}},
		"names that are almost ours": {[]string{"hub-20260501T000000.5Z.backup", "hub-20261301T000000Z.backup", first + ".sha256",
			"another-" + first}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			for _, file := range append(test.others, written) {
				if err := os.WriteFile(filepath.Join(directory, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := removeOldBackups(directory, written, test.keep); err != nil {
				t.Fatal(err)
			}
			for _, file := range append(test.others, written) {
				_, err := os.Stat(filepath.Join(directory, file))
				if removed := err != nil; removed != slices.Contains(test.removed, file) {
					t.Errorf("%s is removed: %t, want only %v removed", file, removed, test.removed)
				}
			}
		})
	}
}

// An old backup that cannot be removed keeps no other from being removed, and is named.
func TestRemoveOldBackupsGoesOn(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	stuck, old, written := filepath.Join(directory, "hub-20200101T000000Z.backup"), filepath.Join(directory, "hub-20210101T000000Z.backup"),
		"hub-20220101T000000Z.backup"
	// A folder that is not empty is not removed.
	if err := errors.Join(os.MkdirAll(filepath.Join(stuck, "files"), 0o700), os.WriteFile(old, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := removeOldBackups(directory, written, 1); err == nil || !strings.Contains(err.Error(), stuck) {
		t.Errorf("error %v, want one with %s", err, stuck)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is not removed: %v", old, err)
	}
}

// The part of a backup that a killed process has left is removed, and nothing that may still be written, is complete, or is not ours.
func TestRemoveAbandoned(t *testing.T) {
	t.Parallel()
	const abandoned, written = "hub-20260501T120000Z.backup.1.partial", "hub-20260501T180000Z.backup.2.partial"
	directory, now := filepath.Join(t.TempDir(), "[of] my*hub"), time.Date(2026, 5, 1, 18, 0, 30, 0, time.UTC) // no pattern
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	times := map[string]time.Time{
		abandoned: now.Add(-6 * time.Hour), written: now.Add(-30 * time.Second), "hub-20260401T120000Z.backup": now.Add(-30 * 24 * time.Hour),
		"another.partial": now.Add(-6 * time.Hour),
	}
	for name, at := range times {
		file := filepath.Join(directory, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeAbandoned(directory, now); err != nil {
		t.Fatal(err)
	}
	for name := range times {
		if _, err := os.Stat(filepath.Join(directory, name)); (err == nil) != (name != abandoned) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A backup also removes what one before it has left in the folder, although it fails itself.
func TestBackupRemovesAbandoned(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	abandoned, long := filepath.Join(directory, "hub-20200101T000000Z.backup.1.partial"), time.Now().Add(-2*abandonedAfter)
	if err := errors.Join(os.WriteFile(abandoned, nil, 0o600), os.Chtimes(abandoned, long, long)); err != nil {
		t.Fatal(err)
	}
	f := backupFlags{directory: directory, kubeconfig: filepath.Join(directory, "missing")}
	if err := f.once(t.Context(), nil); err == nil {
		t.Error("there is a backup without a kubeconfig")
	}
	if entries, err := os.ReadDir(directory); err != nil || len(entries) != 0 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// newStorage is the database of an etcd, without objects.
func newStorage(t *testing.T) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("key"))
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func kubeconfigFor(server string) string {
	return "apiVersion: v1\nkind: Config\nclusters: [{name: hub, cluster: {server: '" + server + "'}}]\n" +
		"contexts: [{name: hub, context: {cluster: hub}}]\ncurrent-context: hub\n"
}

// serveBackups is a hub with that storage, which sends backups of itself. It returns the kubeconfig of an administrator.
func serveBackups(t *testing.T, storage []byte) string {
	t.Helper()
	hub := httptest.NewServer(backup.Handler(t.Context(), &backup.Source{
		KeysDir: t.TempDir(), Prefix: "/registry", Clock: clock.RealClock{},
		Snapshot: func() backup.Snapshot {
			return struct {
				*bytes.Reader
				io.Closer
			}{bytes.NewReader(storage), io.NopCloser(nil)}
		},
	}))
	t.Cleanup(hub.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(kubeconfigFor(hub.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// What is not encrypted is made where the user wants it, and never where only encrypted backups go.
func TestFolderOfCopy(t *testing.T) {
	for _, test := range []struct{ temporary, passphrase, want string }{
		{"", "", "backups"}, {"", "secret", ""}, {"/scratch", "", ""}, {"/scratch", "secret", ""},
	} {
		t.Setenv("TMPDIR", test.temporary)
		if got := folderOfCopy("backups", test.passphrase); got != test.want {
			t.Errorf("TMPDIR %q, passphrase %q: %q, want %q", test.temporary, test.passphrase, got, test.want)
		}
	}
}

// A folder for temporary files that is missing stops a backup only where it is used.
func TestBackupWithoutTemporaryFiles(t *testing.T) {
	kubeconfig, directory := serveBackups(t, newStorage(t)), t.TempDir()
	for name, test := range map[string]struct {
		temporary string
		fails     bool
	}{
		"beside the backup": {"", false},
		"in a folder":       {t.TempDir(), false},
		"in a missing one":  {filepath.Join(directory, "missing"), true},
	} {
		t.Setenv("TMPDIR", test.temporary)
		f := backupFlags{kubeconfig: kubeconfig}
		if err := f.once(t.Context(), []string{filepath.Join(directory, name)}); (err != nil) != test.fails {
			t.Errorf("%s: %v, want a failure: %t", name, err, test.fails)
		}
	}
}

// What a hub with a damaged storage sends is no backup, and no older one is removed for it.
func TestBackupOfADamagedStorage(t *testing.T) {
	t.Parallel()
	const old = "hub-20200101T000000Z.backup"
	for name, test := range map[string]struct {
		damaged, named bool
	}{
		"a sound storage":                   {},
		"a damaged storage":                 {damaged: true},
		"a damaged storage in a named file": {damaged: true, named: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storage, directory := newStorage(t), t.TempDir()
			if test.damaged {
				clear(storage[2*os.Getpagesize():]) // all that its first two pages refer to
			}
			if err := os.WriteFile(filepath.Join(directory, old), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			f, args := backupFlags{kubeconfig: serveBackups(t, storage), directory: directory, keep: 1}, []string(nil)
			if test.named {
				f.directory, f.keep, args = "", 0, []string{filepath.Join(directory, "hub.backup")}
			}
			err := f.once(t.Context(), args)
			if damaged := err != nil && strings.Contains(err.Error(), "it is damaged"); damaged != test.damaged || err != nil && !damaged {
				t.Errorf("it ends with %v", err)
			}
			entries, err := os.ReadDir(directory)
			if err != nil || len(entries) != 1 || (entries[0].Name() == old) != test.damaged {
				t.Errorf("the folder has %v, %v", entries, err)
			}
		})
	}
}
