package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Contents are the objects in a backup.
type Contents struct {
	// Revision is that of the storage.
	Revision int64 `json:"revision"`
	// Objects counts them by resource and group, as in manifestworks.work.open-cluster-management.io.
	Objects map[string]int `json:"objects"`
	// WorksHeld says that the hub withholds its works from agents, as one that was restored so before.
	WorksHeld bool `json:"worksHeld,omitempty"`
}

// Check reads a backup to its end and checks it, with the storage in it, unless ctx ends first. It keeps nothing of it: meanwhile, there is
// a copy of the storage in a folder, that for temporary files if it is empty.
func Check(ctx context.Context, r io.Reader, folder string, progress *Progress) (*Description, *Contents, error) {
	database, err := newUnnamedFile(folder)
	if err != nil {
		return nil, nil, err
	}
	defer database.Close()
	description, err := Read(ctx, r, progress, func(name string, content io.Reader) error {
		if name != storageFile {
			return nil
		}
		_, err := io.Copy(database, content)
		if errors.As(err, new(*fs.PathError)) {
			err = noCopy(err)
		}
		return err
	})
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, nil, err
	}
	contents, err := readContents(ctx, database, description.Prefix, progress)
	if err != nil {
		return nil, nil, err
	}
	return description, contents, nil
}

// newUnnamedFile makes a file on the disk of a folder, without a name there: however the process ends, it leaves no Secrets.
func newUnnamedFile(folder string) (*os.File, error) {
	file, err := os.CreateTemp(folder, "capstan-backup-") // for its owner alone
	if err != nil {
		return nil, noCopy(err)
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(noCopy(err), file.Close())
	}
	return file, nil
}

// noCopy is an error of the copy of the storage, which is not one of the backup. It names the file.
func noCopy(err error) error {
	return fmt.Errorf("make the copy of the storage that is checked, for which TMPDIR may name another folder: %w", err)
}

// checkStorage checks the database of a backup that was extracted, unless ctx ends first.
func checkStorage(ctx context.Context, file string, d *Description, progress *Progress) (*Contents, error) {
	database, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer database.Close()
	return readContents(ctx, database, d.Prefix, progress)
}

// readContents checks the database of a backup and counts what is in it, unless ctx ends first. It closes the file.
func readContents(ctx context.Context, database *os.File, prefix string, progress *Progress) (*Contents, error) {
	contents := &Contents{Objects: map[string]int{}}
	if err := contents.read(ctx, database, prefix, progress); err != nil {
		return nil, fmt.Errorf("read the storage of the backup: %w", err)
	}
	return contents, nil
}

func (c *Contents) read(ctx context.Context, database *os.File, prefix string, progress *Progress) (err error) {
	// bbolt panics at what it cannot read, and a part of the file that the disk does not give is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("it is damaged: %v", reason)
		}
	}()
	db, err := bbolt.Open(database.Name(), 0, &bbolt.Options{ReadOnly: true, OpenFile: func(string, int, os.FileMode) (*os.File, error) {
		return database, nil
	}})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		progress.doing("checking the storage")
		if err := checkPages(ctx, database, tx); err != nil {
			return err
		}
		return c.count(ctx, tx, prefix, progress.counting("counting objects in revisions"))
	})
}

// count counts the objects as of the last revision, finds out whether works are held, and checks all buckets meanwhile.
func (c *Contents) count(ctx context.Context, tx *bbolt.Tx, prefix string, read *atomic.Int64) error {
	if tx.Bucket(schema.Key.Name()) == nil {
		return fmt.Errorf("there is no bucket %q", schema.Key.Name())
	}
	alive := map[string]bool{}
	err := tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		// In the order of revisions.
		return forEachFound(ctx, name, bucket, func(revision, value []byte) error {
			if !bytes.Equal(name, schema.Key.Name()) {
				return nil
			}
			read.Add(1)
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(value, &kv); err != nil {
				return damaged("%w", err)
			}
			c.Revision = mvcc.BytesToRev(revision).Main
			alive[string(kv.Key)] = !mvcc.IsTombstone(revision)
			return nil
		})
	})
	if err != nil {
		return err
	}
	for key, is := range alive {
		if resource := resourceOf(key, prefix); is && resource != "" {
			c.Objects[resource]++
		}
	}
	c.WorksHeld = alive[path.Join(prefix, "configmaps", fleet.NamespaceHub, fleet.ConfigMapWorksHeld)]
	return nil
}

// forEachFound hands on the keys and values of a bucket, and fails at one that is out of order or not found by its key.
func forEachFound(ctx context.Context, name []byte, bucket *bbolt.Bucket, do func(key, value []byte) error) error {
	lookup := bucket.Cursor()
	var last []byte
	return bucket.ForEach(func(key, value []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if last != nil && bytes.Compare(last, key) >= 0 {
			return damaged("keys in bucket %q are out of order", name)
		}
		last = key
		if found, _ := lookup.Seek(key); !bytes.Equal(found, key) {
			return damaged("in bucket %q, keys are not found where they are", name)
		}
		return do(key, value)
	})
}

// resourceOf is the resource of a key: PREFIX/GROUP/RESOURCE/… or, of what is built into Kubernetes, PREFIX/RESOURCE/….
func resourceOf(key, prefix string) string {
	rest, below := strings.CutPrefix(key, strings.TrimSuffix(prefix, "/")+"/")
	if !below {
		return ""
	}
	segments := strings.Split(rest, "/")
	if len(segments) > 2 && strings.Contains(segments[0], ".") {
		return segments[1] + "." + segments[0]
	}
	return segments[0]
}
