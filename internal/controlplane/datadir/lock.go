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

const lockFile = "lock"

// Lock is the lock of a data directory.
type Lock struct {
	file *fileutil.LockedFile
}

// Acquire creates the directory, with mode 0700, if need be and takes it for this process. It fails at once, naming the
// holder's process, when another one has it. The system releases the lock when the process ends, however it ends.
func Acquire(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(err)
	}
	path := filepath.Join(dir, lockFile)
	file, err := fileutil.TryLockFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("the data directory %s is in use by process %s; stop that process, or choose another directory", dir, lockedBy(path))
	}
	if err != nil {
		return nil, unusable(err)
	}
	if err := errors.Join(file.Truncate(0), writePID(file.File)); err != nil {
		_ = file.Close()
		return nil, unusable(err)
	}
	return &Lock{file: file}, nil
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
