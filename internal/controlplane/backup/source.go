package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Path is where a hub serves a backup of itself, to who may get it: it has the keys of the hub.
const Path = "/backup"

// Snapshot is the database of an etcd at one revision.
type Snapshot interface {
	io.WriterTo
	io.Closer
	Size() int64
}

// Source is a hub that runs.
type Source struct {
	// Hub is the URL of the hub.
	Hub string
	// Version is that of the program.
	Version string
	// Prefix is that of all keys in the etcd.
	Prefix string
	// EtcdDirectory is the folder that EtcdDirectoryFlag names, or empty.
	EtcdDirectory string
	// KeysDir is the folder of its keys and certificates.
	KeysDir string
	// Supplied are the files that users have given the hub, which are not in KeysDir.
	Supplied []File
	// Snapshot is the database of its etcd as it is now.
	Snapshot func() Snapshot
	Clock    clock.PassiveClock
}

// Write writes a backup of the hub as it is now. The hub goes on meanwhile.
func (s *Source) Write(w io.Writer) error {
	created, keys, snapshot, err := s.take()
	if err != nil {
		return err
	}
	defer snapshot.Close()
	description, err := json.MarshalIndent(Description{
		FormatVersion: formatVersion, Created: created, Hub: s.Hub, Version: s.Version, Prefix: s.Prefix, EtcdDirectory: s.EtcdDirectory,
		StorageBytes: snapshot.Size(), Encryption: encryptionProviders(s.Supplied), Lacks: s.Supplied,
	}, "", "  ")
	if err != nil {
		return err
	}
	a := newArchive(w, created)
	if err := a.addContent(descriptionFile, description); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if err := a.addContent(path.Join(keysFolder, name), keys[name]); err != nil {
			return err
		}
	}
	err = a.add(storageFile, snapshot.Size(), func(w io.Writer) error {
		_, err := snapshot.WriteTo(w)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the storage: %w", err)
	}
	return a.close()
}

// attempts is how often the keys are read again because they were renewed meanwhile, which happens once in months.
const attempts = 3

// take takes the database, and the keys that there were at that moment.
func (s *Source) take() (time.Time, map[string][]byte, Snapshot, error) {
	before, err := s.readKeys()
	if err != nil {
		return time.Time{}, nil, nil, err
	}
	for range attempts {
		created, snapshot := s.Clock.Now().UTC(), s.Snapshot()
		after, err := s.readKeys()
		if err != nil {
			return time.Time{}, nil, nil, errors.Join(err, snapshot.Close())
		}
		if maps.EqualFunc(before, after, bytes.Equal) {
			return created, after, snapshot, nil
		}
		before = after
		if err := snapshot.Close(); err != nil {
			return time.Time{}, nil, nil, err
		}
	}
	return time.Time{}, nil, nil, fmt.Errorf("the keys in %s change all the time; try again", s.KeysDir)
}

// readKeys reads the files by their paths below the folder.
func (s *Source) readKeys() (map[string][]byte, error) {
	root, err := os.OpenRoot(s.KeysDir)
	if err != nil {
		return nil, fmt.Errorf("read the keys of the hub: %w", err)
	}
	defer root.Close()
	keys := map[string][]byte{}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		keys[name], err = root.ReadFile(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys of the hub: %w", err)
	}
	return keys, nil
}

// stalled is how long a client may take nothing of a backup. The etcd keeps what a backup may still read, and does not close before.
const stalled = time.Minute

var errStopping = errors.New("the hub stops")

// download writes to a client until it stalls, or the hub stops.
type download struct {
	io.Writer
	deadline func(time.Time) error
	mu       sync.Mutex
	stopping bool
}

// Write implements io.Writer.
func (d *download) Write(b []byte) (int, error) {
	if err := d.extend(); err != nil {
		return 0, err
	}
	return d.Writer.Write(b)
}

func (d *download) extend() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return errStopping
	}
	_ = d.deadline(time.Now().Add(stalled)) // a client in the same process has none
	return nil
}

// stop also ends a write that is in flight.
func (d *download) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopping = true
	_ = d.deadline(time.Now())
}

// Handler answers with a backup of the hub until ctx ends; one at a time, as the etcd keeps what a backup may still read. A nil source is a
// hub that has no storage of its own.
func Handler(ctx context.Context, source *Source) http.Handler {
	var writing sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		case source == nil:
			http.Error(w, "this hub has its objects in an external etcd; back up that etcd, where the keys of the hub are, too",
				http.StatusNotImplemented)
			return
		case !writing.TryLock():
			http.Error(w, "another backup is being written; try again when it is done", http.StatusConflict)
			return
		}
		defer writing.Unlock()
		logger := klog.FromContext(r.Context()) //nolint:contextcheck // a request has a context of its own, and ctx is that of the hub
		w.Header().Set("Content-Type", "application/gzip")
		to := &download{Writer: w, deadline: http.NewResponseController(w).SetWriteDeadline}
		defer context.AfterFunc(ctx, to.stop)()
		if err := source.Write(to); err != nil {
			logger.Error(err, "A backup was not written to its end")
			panic(http.ErrAbortHandler) // the client sees that the end is missing
		}
		logger.Info("A backup was written", "for", r.RemoteAddr)
	})
}
