package backup

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// Contents are the objects in a backup.
type Contents struct {
	// Revision is that of the storage.
	Revision int64 `json:"revision"`
	// Objects counts them by resource and group, as in manifestworks.work.open-cluster-management.io.
	Objects map[string]int `json:"objects"`
}

// ReadContents reads the database of a backup that was extracted to a folder, unless ctx ends first.
func ReadContents(ctx context.Context, dir string, d *Description, progress *Progress) (*Contents, error) {
	db, err := bbolt.Open(filepath.Join(dir, storageFile), 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open the storage of the backup: %w", err)
	}
	defer db.Close()
	contents, alive := &Contents{Objects: map[string]int{}}, map[string]bool{}
	err = db.View(func(tx *bbolt.Tx) error {
		progress.doing("checking the storage")
		for problem := range tx.Check() {
			return problem
		}
		bucket := tx.Bucket(schema.Key.Name())
		if bucket == nil {
			return fmt.Errorf("there is no bucket %q", schema.Key.Name())
		}
		read := progress.counting("counting objects in revisions")
		// In the order of revisions.
		return bucket.ForEach(func(revision, value []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			read.Add(1)
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(value, &kv); err != nil {
				return err
			}
			contents.Revision = mvcc.BytesToRev(revision).Main
			alive[string(kv.Key)] = !mvcc.IsTombstone(revision)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the storage of the backup: %w", err)
	}
	for key, is := range alive {
		if resource := resourceOf(key, d.Prefix); is && resource != "" {
			contents.Objects[resource]++
		}
	}
	return contents, nil
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
