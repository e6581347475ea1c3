package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// BecomeSibling replaces this process with a program of the same folder, which gets the command line argv and the environment. It returns
// only if that fails.
func BecomeSibling(name string, argv []string) error {
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	// The program may have been called by a symbolic link.
	if own, err = filepath.EvalSymlinks(own); err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	path := filepath.Join(filepath.Dir(own), name)
	err = syscall.Exec(path, argv, os.Environ())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%v: %s is needed for it, and there is none next to %s; use an image that has it", argv, name, own)
	}
	return fmt.Errorf("run %s: %w", path, err)
}
