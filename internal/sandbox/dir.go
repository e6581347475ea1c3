package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/capstan-io/capstan/internal/controlplane/datadir"
)

// The layout of a data directory.
const (
	portFile       = "port"
	kubeconfigFile = "kubeconfig"
	pkiDir         = "pki"
	etcdDir        = "etcd"
)

// harmless are what may be in a directory before its first start: what is on an empty disk, and what a start that was killed
// has left before there was anything of a cluster.
var harmless = []string{"lost+found", datadir.LockFile, portFile, "log"}

// checkDir refuses a directory that is something else's, whose kubeconfig that of the cluster would replace. Logs may be
// there: whoever starts a process may keep its output beside its data.
func checkDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("use the data directory: %w", err)
	}
	foreign := slices.IndexFunc(entries, func(e os.DirEntry) bool {
		return !slices.Contains(harmless, e.Name()) && filepath.Ext(e.Name()) != ".log"
	})
	ours := slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == pkiDir || e.Name() == etcdDir })
	if foreign < 0 || ours {
		return nil
	}
	return fmt.Errorf("%s is not empty and not a sandbox's, it has %s: choose another --data-dir", dir, entries[foreign].Name())
}
