package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/capstan-io/capstan/internal/controlplane/datadir"
	"github.com/capstan-io/capstan/internal/controlplane/etcd"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
)

// leastBump is more than a hub writes between a backup and its end.
const leastBump = 1_000_000_000

// revisionBump is by how much revisions are higher on a hub that is restored at a time than in the backup. All clients then list anew,
// where they would otherwise take new revisions for old ones. The hub goes on from the number of microseconds since 1970, of which there
// are more than it has writes: that is later than what it had when it was restored from the same backup before.
func revisionBump(revision int64, now time.Time) uint64 {
	return uint64(max(leastBump, now.UnixMicro()-revision))
}

// EtcdDirectoryFlag names the folder of the etcd to a server and to a restore.
const EtcdDirectoryFlag = "--embedded-etcd-directory"

// Target is where a hub is restored to.
type Target struct {
	// DataDir is the data directory of the hub, and EtcdDir that of its etcd.
	DataDir, EtcdDir string
	// NamedEtcdDir says that EtcdDirectoryFlag has named EtcdDir.
	NamedEtcdDir bool
	// Prefix is what the hub has all its keys in the etcd below.
	Prefix string
	// SuspendWorks has the hub withhold its works from agents when it starts.
	SuspendWorks bool
	// Progress says how far it is; it may be nil.
	Progress *Progress

	// sync has the names in a folder survive a power failure; nil means datadir.Sync.
	sync func(folder string) error
}

// SuspendWorksFile is what has a hub withhold its works from agents when it starts, in its data directory.
func SuspendWorksFile(dataDir string) string { return filepath.Join(dataDir, "hold-works") }

// HoldWorks has the hub of a data directory withhold its works from agents when it starts, for one whose objects are restored otherwise.
func HoldWorks(dataDir string) (err error) {
	lock, err := datadir.Acquire(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if err := suspendWorks(dataDir); err != nil {
		return err
	}
	return datadir.Sync(dataDir)
}

func suspendWorks(dataDir string) error {
	err := writeFile(SuspendWorksFile(dataDir), strings.NewReader(""))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("have the hub hold its works: %w", err)
	}
	return nil
}

// Restore makes the data directory that of the hub in the backup, unless ctx ends first. It has to have no hub so far. If it fails, the
// folder has none.
func Restore(ctx context.Context, r io.Reader, to Target) (_ *Description, _ *Contents, err error) {
	if to.sync == nil {
		to.sync = datadir.Sync
	}
	lock, err := datadir.Acquire(to.DataDir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	keys, member := filepath.Join(to.DataDir, keysFolder), etcd.MemberDir(to.EtcdDir)
	if err := clearUp(to, keys, member); err != nil {
		return nil, nil, err
	}
	staging, err := os.MkdirTemp(to.DataDir, stagingPrefix)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	description, err := extract(ctx, r, staging, to.Progress)
	if err != nil {
		return nil, nil, err
	}
	if err := to.fits(description); err != nil {
		return nil, nil, err
	}
	contents, err := checkStorage(ctx, filepath.Join(staging, storageFile), description, to.Progress)
	if err != nil {
		return nil, nil, err
	}
	to.Progress.doing("making a storage of it")
	// The keys come last: a hub with its keys and without its objects would have all its agents remove their works.
	if err := createEtcd(ctx, filepath.Join(staging, storageFile), revisionBump(contents.Revision, time.Now()), to); err != nil {
		return nil, nil, err
	}
	if err := installKeys(filepath.Join(staging, keysFolder), keys, to); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(member))
	}
	return description, contents, nil
}

// fits fails if the hub would not find the objects of a backup: it would be one without objects, under the name of the other.
func (to Target) fits(d *Description) error {
	if d.Prefix != to.Prefix {
		return fmt.Errorf("etcd.prefix in %s is %s, but the hub of the backup has its objects below %s; set etcd.prefix to %[3]s",
			ocmconfig.FileName, to.Prefix, d.Prefix)
	}
	if d.EtcdDirectory != "" && !to.NamedEtcdDir {
		return fmt.Errorf("the server of the backup had %s %s; name the folder that the server will have now, by %[1]s %[2]s, or by "+
			"%[1]s %[3]s if it will be without that flag", EtcdDirectoryFlag, d.EtcdDirectory, to.EtcdDir)
	}
	return nil
}

// stagingPrefix is how the names of folders start in which a restore has what it puts in place later. They have keys and Secrets.
const stagingPrefix = "capstan-restore-"

// clearUp removes what a restore has left that was killed, and fails if there is a hub.
func clearUp(to Target, keys, member string) error {
	for _, folder := range []string{to.DataDir, to.EtcdDir} {
		if err := removeStaging(folder); err != nil {
			return fmt.Errorf("remove what a restore has left that was killed: %w", err)
		}
	}
	for _, folder := range []string{keys, member} {
		if err := isEmpty(folder); err != nil {
			return err
		}
	}
	if err := os.Remove(SuspendWorksFile(to.DataDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what a restore has left that was killed: %w", err)
	}
	return nil
}

// removeStaging removes the folders that are named by stagingPrefix. The lock of the data directory says that no other restore uses them.
func removeStaging(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), stagingPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// installKeys makes the data directory that of a hub, and marks it if the hub is to withhold its works. If it fails, there is no mark.
func installKeys(staged, keys string, to Target) error {
	marker := SuspendWorksFile(to.DataDir)
	if to.SuspendWorks {
		if err := suspendWorks(to.DataDir); err != nil {
			return err
		}
	}
	err := to.sync(to.DataDir) // the mark, and the folder of the etcd
	if err == nil {
		err = to.putInPlace(staged, keys)
	}
	if err == nil {
		return nil
	}
	if to.SuspendWorks {
		err = errors.Join(err, os.Remove(marker))
	}
	return fmt.Errorf("put the keys in place: %w", err)
}

// createEtcd makes the storage of a database, in a folder that may be a disk of its own. It is not put in place if ctx ends meanwhile.
func createEtcd(ctx context.Context, database string, bump uint64, to Target) (err error) {
	if err := os.MkdirAll(to.EtcdDir, 0o700); err != nil {
		return err
	}
	staging, err := os.MkdirTemp(to.EtcdDir, stagingPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	made := etcd.MemberDir(staging)
	if err := restoreEtcd(database, made, bump); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := to.putInPlace(made, etcd.MemberDir(to.EtcdDir)); err != nil {
		return fmt.Errorf("put the storage in place: %w", err)
	}
	return nil
}

// putInPlace makes one folder another, which is empty. After a power failure, that one has all that it is to have, or nothing.
func (to Target) putInPlace(made, folder string) error {
	err := filepath.WalkDir(made, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return to.sync(name)
	})
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(folder), os.Rename(made, folder)); err != nil {
		return err
	}
	if err := to.sync(filepath.Dir(folder)); err != nil {
		return errors.Join(err, os.RemoveAll(folder))
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

// extract checks a backup, and puts its files below a folder, which it removes if ctx ends first.
func extract(ctx context.Context, r io.Reader, dir string, progress *Progress) (*Description, error) {
	// At once, also if it waits for its input and is killed then: the files have the keys of the hub.
	stop := context.AfterFunc(ctx, func() { _ = os.RemoveAll(dir) })
	description, err := Read(ctx, r, progress, func(name string, content io.Reader) error {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(path.Dir(file), 0o700); err != nil {
			return err
		}
		return writeFile(file, content)
	})
	if !stop() {
		return nil, ctx.Err()
	}
	return description, err
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
func restoreEtcd(database, dir string, bump uint64) error {
	name, peerURL := etcd.Membership()
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: database, OutputDataDir: dir, SkipHashCheck: true,
		Name: name, PeerURLs: []string{peerURL}, InitialCluster: name + "=" + peerURL, InitialClusterToken: "etcd-cluster",
		RevisionBump: bump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("make a storage of the backup: %w", err)
	}
	return nil
}
