package etcd

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	socketName = "client.sock"

	// maxSocketPath is what fits into a unix socket address on every platform: 104 bytes with the final zero on
	// macOS, 108 on Linux.
	maxSocketPath = 103
)

// socketDirectory is where the private socket goes: next to the data, or in a short temporary directory when that path
// is too long for a socket address. cleanup removes what was created.
func socketDirectory(dataDir string) (dir string, cleanup func(), err error) {
	dataDir, err = filepath.Abs(dataDir)
	if err != nil {
		return "", nil, err
	}
	if len(filepath.Join(dataDir, socketName)) <= maxSocketPath {
		return dataDir, func() { _ = os.Remove(filepath.Join(dataDir, socketName)) }, nil
	}
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		dir, err = os.MkdirTemp(parent, "capstan-etcd-")
		if err != nil {
			continue
		}
		if len(filepath.Join(dir, socketName)) <= maxSocketPath {
			return dir, func() { _ = os.RemoveAll(dir) }, nil
		}
		_ = os.RemoveAll(dir)
	}
	if err != nil {
		return "", nil, fmt.Errorf("create a directory for etcd's socket: %w", err)
	}
	return "", nil, fmt.Errorf("no directory with a path short enough for a socket: %s and %s are both too long", dataDir, os.TempDir())
}
