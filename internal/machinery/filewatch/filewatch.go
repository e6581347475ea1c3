// Package filewatch notifies when the content of files changes, however they are written: in place, by another file of the same
// name, or by the swap of a link as in the volumes of Secrets. All that a process watches takes one inotify instance.
package filewatch

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The files are also read without an event: rarely where their folders can be watched, often where a folder cannot,
// because it is not there yet, say, or because the machine has no watches left.
const (
	watchedInterval   = time.Minute
	unwatchedInterval = 5 * time.Second
)

// Watcher notifies of changes of files since it was made. So what is read of a file after that is either its last content, or a change
// follows.
type Watcher struct {
	files             func() []string
	seen              [sha256.Size]byte
	folders           *folders
	events            *listener
	unwatchedInterval time.Duration
}

// New returns a Watcher of the files as they are now. files is called again after each change, because files may name others.
func New(files func() []string) *Watcher {
	w := &Watcher{files: files, folders: everywhere, events: newListener(), unwatchedInterval: unwatchedInterval}
	w.seen = w.digest()
	return w
}

// Run calls changed after each change of the files since New, until the context ends. Several changes in a row may be one
// call. Beginning and end of a file's existence are changes too.
func (w *Watcher) Run(ctx context.Context, changed func()) {
	defer w.folders.leave(w.events)
	for {
		interval := watchedInterval
		if !w.follow(ctx) {
			interval = w.unwatchedInterval
		}
		// What changed before the watch started.
		now := w.digest()
		if now == w.seen {
			if !w.wait(ctx, interval) {
				return
			}
			now = w.digest()
		}
		if now != w.seen {
			w.seen = now
			changed()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// digest stands for the content of all files.
func (w *Watcher) digest() (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, file := range w.files() {
		content, err := os.ReadFile(file)
		one := sha256.Sum256(content)
		hash.Write([]byte(file))
		if err != nil {
			hash.Write([]byte("unreadable"))
		}
		hash.Write(one[:])
	}
	hash.Sum(sum[:0])
	return sum
}

// follow watches the folders of the files, and those of what they link to. It reports whether it can watch all of them.
func (w *Watcher) follow(ctx context.Context) bool {
	paths, err := w.paths()
	err = errors.Join(err, w.folders.listen(w.events, paths))
	if err != nil {
		log.FromContext(ctx).V(1).Info("Files cannot be watched; they are looked at instead", "reason", err.Error(), "every", w.unwatchedInterval)
	}
	return err == nil
}

// paths are the folders to watch, without links. A folder must not be watched under a name with a link in it: inotify has one watch for
// each folder, so the end of that under one name is the end of that under the other. So a folder that is not there yet is not watched,
// even if it is there a moment later.
func (w *Watcher) paths() ([]string, error) {
	var paths []string
	var errs []error
	for _, file := range w.files() {
		folder, err := filepath.EvalSymlinks(filepath.Dir(file))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		paths = append(paths, folder)
		if target, err := filepath.EvalSymlinks(file); err == nil {
			paths = append(paths, filepath.Dir(target))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), errors.Join(errs...)
}

// wait returns after an event, or the given time; false if the context ended first.
func (w *Watcher) wait(ctx context.Context, interval time.Duration) bool {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-w.events.notified:
	}
	return true
}
