// Package atomicfile replaces files in one step.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// TemporaryPrefix is how the names of files start that are being written. A crash leaves them.
const TemporaryPrefix = ".new-"

// Write writes a file in one step that survives a power failure: its readers see the old content or the new one, never a part.
func Write(file string, content []byte, mode fs.FileMode) error {
	next, err := os.CreateTemp(filepath.Dir(file), TemporaryPrefix+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) // there is one unless the file is written
	_, err = next.Write(content)
	if err := errors.Join(err, next.Chmod(mode), next.Sync(), next.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(next.Name(), file)
}

// WriteSecret is Write for a file that only its owner can read, and that stays as it is if it has the content already.
func WriteSecret(file string, content []byte) error {
	if now, err := os.ReadFile(file); err == nil && bytes.Equal(now, content) {
		return nil
	}
	return Write(file, content, 0o600)
}
