// Package filewatch tells when the content of files changes, however they are written: in place, by another file of the same
// name, or by the swap of a link as in the volumes of Secrets.
package filewatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The files are also looked at without an event: rarely where their folders can be watched, often where a folder cannot,
// because it is not there yet, say, or because the machine has no watches left.
const (
	watchedRecheck   = time.Minute
	unwatchedRecheck = 5 * time.Second
)

// Watcher tells of changes of files since it was made, so what is read of them after that is either what they say in the end, or
// told to be out of date.
type Watcher struct {
	files            func() []string
	seen             [sha256.Size]byte
	begin            func() (*fsnotify.Watcher, error)
	unwatchedRecheck time.Duration
	notify           *fsnotify.Watcher
	folders          []string
}

// New returns a Watcher of the files as they are now. files is asked again after each change, because files may name others.
func New(files func() []string) *Watcher {
	w := &Watcher{files: files, begin: fsnotify.NewWatcher, unwatchedRecheck: unwatchedRecheck}
	w.seen = w.digest()
	return w
}

// Run calls changed after each change of the files since New, until the context ends. Several changes in a row may be one
// call. Beginning and end of a file's existence are changes too.
func (w *Watcher) Run(ctx context.Context, changed func()) {
	defer w.close()
	for {
		recheck := watchedRecheck
		if !w.follow(ctx) {
			recheck = w.unwatchedRecheck
		}
		// What changed before the watch began.
		now := w.digest()
		if now == w.seen {
			if !w.wait(ctx, recheck) {
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
	var folders []string
	for _, file := range w.files() {
		folders = append(folders, filepath.Dir(file))
		if target, err := filepath.EvalSymlinks(file); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
	}
	slices.Sort(folders)
	folders = slices.Compact(folders)
	if w.notify != nil && slices.Equal(folders, w.folders) {
		return true
	}
	w.close()
	notify, err := w.begin()
	if err != nil {
		log.FromContext(ctx).V(1).Info("Files cannot be watched; they are looked at instead", "reason", err.Error(), "every", w.unwatchedRecheck)
		return false
	}
	w.notify, w.folders = notify, folders
	for _, folder := range folders {
		if err := notify.Add(folder); err != nil {
			w.folders = nil // to be tried again
		}
	}
	return w.folders != nil
}

// wait returns after an event, an error of the watch or the given time; false if the context ended first.
func (w *Watcher) wait(ctx context.Context, recheck time.Duration) bool {
	timer := time.NewTimer(recheck)
	defer timer.Stop()
	var events chan fsnotify.Event
	var errs chan error
	if w.notify != nil {
		events, errs = w.notify.Events, w.notify.Errors
	}
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-events:
	case err := <-errs:
		log.FromContext(ctx).V(1).Info("Events of files may have been lost; the files are looked at", "reason", fmt.Sprint(err))
	}
	return true
}

func (w *Watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
		w.notify = nil
	}
}
