// Package datadir guards a data directory against a second process, and its folders against power failures.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// LockFile is the name of the lock in a data directory.
const LockFile = "lock"

// Lock is the lock of a data directory.
type Lock struct {
	file *fileutil.LockedFile
}

// Acquire creates the directory, with mode 0700, if need be and takes it for this process. It fails at once, naming the
// holder's process, when another one has it. The system releases the lock when the process ends, however it ends.
func Acquire(dir string) (*Lock, error) { return AcquireAs(dir, LockFile) }

// AcquireAs is Acquire with a lock of another name, for a part of the data that may be in a directory of its own, or beside others.
func AcquireAs(dir, name string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(err)
	}
	path := filepath.Join(dir, name)
	file, err := fileutil.TryLockFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("the data directory %s is in use by process %s; stop that process, or choose another directory", dir, lockedBy(path))
	}
	if err != nil {
		return nil, unusable(err)
	}
	if err := checkLock(path); err != nil {
		_ = file.Close()
		return nil, err
	}
	if err := errors.Join(file.Truncate(0), writePID(file.File)); err != nil {
		_ = file.Close()
		return nil, unusable(err)
	}
	return &Lock{file: file}, nil
}

// checkLock fails for a file that is something else of the user's. A power failure may have left zeros in a lock.
func checkLock(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return unusable(err)
	}
	if strings.Trim(string(content), "0123456789\n\x00") != "" {
		return fmt.Errorf("%s is there and not the lock of a data directory; choose another directory, or move the file away", path)
	}
	return nil
}

func unusable(err error) error {
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause
	}
	return fmt.Errorf("use the data directory: %w; it must be a folder on a disk with room in which this user may create files", err)
}

func writePID(file *os.File) error {
	_, err := fmt.Fprintf(file, "%d\n", os.Getpid())
	return err
}

func lockedBy(path string) string {
	pid, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(pid)) == "" {
		return "(unknown)"
	}
	return strings.TrimSpace(string(pid))
}

// Release gives the directory back.
func (l *Lock) Release() error { return l.file.Close() }
