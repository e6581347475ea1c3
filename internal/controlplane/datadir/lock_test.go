package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A second process is refused, with the first one in the error, and admitted when that one is gone.
func TestSecondHolderIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	first, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Acquire(dir)
	if err == nil {
		t.Fatal("two holders of one directory")
	}
	for _, want := range []string{dir, "process " + strconv.Itoa(os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second, err := Acquire(dir)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
}

// A part of the data has a lock of its own in the same directory.
func TestLocksOfParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	part, err := AcquireAs(dir, "part.lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AcquireAs(dir, "part.lock"); err == nil {
		t.Error("two holders of one part")
	}
	if err := errors.Join(part.Release(), whole.Release()); err != nil {
		t.Error(err)
	}
}

// A file of the user's that is named as the lock stays as it is.
func TestForeignLock(t *testing.T) {
	t.Parallel()
	for content, taken := range map[string]bool{"": true, "4711\n": true, "\x00\x00": true, "lock = yes\n": false, "4711 pins\n": false} {
		dir := t.TempDir()
		file := filepath.Join(dir, LockFile)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		lock, err := Acquire(dir)
		if (err == nil) != taken {
			t.Errorf("%q: %v", content, err)
		}
		if err == nil {
			_ = lock.Release()
		} else if !strings.Contains(err.Error(), file) {
			t.Errorf("%q: error %q does not name the file", content, err)
		}
		if left, _ := os.ReadFile(file); !taken && string(left) != content {
			t.Errorf("%q has become %q", content, left)
		}
	}
}
