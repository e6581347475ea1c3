package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"go.uber.org/zap"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/capstan-io/capstan/internal/controlplane/datadir"
	"github.com/capstan-io/capstan/internal/controlplane/etcd"
)

// revisionBump is by how much revisions are higher on a restored hub than in the backup. More than a hub writes between the backup and its
// end, it makes all clients list anew, where they would otherwise take new revisions for old ones.
const revisionBump = 1_000_000_000

// Target is where a hub is restored to.
type Target struct {
	// DataDir is the data directory of the hub, and EtcdDir that of its etcd.
	DataDir, EtcdDir string
	// SuspendWorks has the hub withhold its works from agents when it starts.
	SuspendWorks bool
	// Progress says how far it is; it may be nil.
	Progress *Progress
}

// SuspendWorksFile is what has a hub withhold its works from agents when it starts, in its data directory.
func SuspendWorksFile(dataDir string) string { return filepath.Join(dataDir, "hold-works") }

// Restore makes the data directory that of the hub in the backup. It has to have no hub so far. If it fails, the folder has none.
func Restore(r io.Reader, to Target) (_ *Description, err error) {
	lock, err := datadir.Acquire(to.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	keys, member := filepath.Join(to.DataDir, keysFolder), etcd.MemberDir(to.EtcdDir)
	for _, folder := range []string{keys, member} {
		if err := isEmpty(folder); err != nil {
			return nil, err
		}
	}
	staging, err := os.MkdirTemp(to.DataDir, "restore-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	description, err := Extract(r, staging, to.Progress)
	if err != nil {
		return nil, err
	}
	to.Progress.doing("making a storage of it")
	// The keys come last: a hub with its keys and without its objects would have all its agents remove their works.
	if err := createEtcd(filepath.Join(staging, storageFile), to.EtcdDir); err != nil {
		return nil, err
	}
	if err := installKeys(filepath.Join(staging, keysFolder), keys, to); err != nil {
		return nil, errors.Join(err, os.RemoveAll(member))
	}
	return description, nil
}

// installKeys makes the data directory that of a hub, and marks it if the hub is to withhold its works. If it fails, there is no mark.
func installKeys(staged, keys string, to Target) error {
	marker := SuspendWorksFile(to.DataDir)
	if to.SuspendWorks {
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			return fmt.Errorf("have the hub hold its works: %w", err)
		}
	}
	err := errors.Join(os.RemoveAll(keys), os.Rename(staged, keys)) // it is empty
	if err == nil {
		return nil
	}
	if to.SuspendWorks {
		err = errors.Join(err, os.Remove(marker))
	}
	return fmt.Errorf("put the keys in place: %w", err)
}

// createEtcd makes the storage of a database, in a folder that may be a disk of its own.
func createEtcd(database, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	staging, err := os.MkdirTemp(dir, "restore-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	made, member := etcd.MemberDir(staging), etcd.MemberDir(dir)
	if err := restoreEtcd(database, made); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(member), os.Rename(made, member)); err != nil { // it is empty
		return fmt.Errorf("put the storage in place: %w", err)
	}
	return nil
}

// isEmpty fails if there is something in a folder.
func isEmpty(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s has %s, so there is a hub already; move it away, or restore to another dataDirectory", folder, entries[0].Name())
	}
	return nil
}

// Extract checks a backup, and puts its files below a folder.
func Extract(r io.Reader, dir string, progress *Progress) (*Description, error) {
	return Read(r, progress, func(name string, content io.Reader) error {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(path.Dir(file), 0o700); err != nil {
			return err
		}
		return writeFile(file, content)
	})
}

func writeFile(file string, content io.Reader) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// restoreEtcd makes a member of an etcd from a database, which has been checked.
func restoreEtcd(database, dir string) error {
	name, peerURL := etcd.Membership()
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: database, OutputDataDir: dir, SkipHashCheck: true,
		Name: name, PeerURLs: []string{peerURL}, InitialCluster: name + "=" + peerURL, InitialClusterToken: "etcd-cluster",
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("make a storage of the backup: %w", err)
	}
	return nil
}
