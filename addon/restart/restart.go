// Package restart is for the agents of add-ons: it has them end, to be started anew, when a file changes that they read only once.
//
// The kubeconfig with the access to the hub is such a file: it changes when the hub gets another address, certification authority or
// proxy. The certificate and the token that it names need no restart: client-go reads them again.
package restart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

// ErrChanged is why a Watcher ends.
var ErrChanged = errors.New("has changed: the agent ends, to be started anew with it")

// Watcher ends when a file has another content. It can be added to a manager of controller-runtime, which then ends, too.
type Watcher struct {
	files   []string
	content map[string][]byte
	changes *filewatch.Watcher
}

// OnChange returns a Watcher of files as they are now: call it before they are read for use. It fails if a file cannot be read.
func OnChange(files ...string) (*Watcher, error) {
	w := &Watcher{files: files, content: map[string][]byte{}, changes: filewatch.New(func() []string { return files })}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		w.content[file] = content
	}
	return w, nil
}

// Start returns ErrChanged with the name of the file when one has changed, and nil when the context is done.
func (w *Watcher) Start(ctx context.Context) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.changes.Run(ctx, func() {
		if file := w.changed(); file != "" {
			err = fmt.Errorf("%s %w", file, ErrChanged)
			stop()
		}
	})
	return err
}

// NeedLeaderElection is false: every replica reads its files by itself.
func (w *Watcher) NeedLeaderElection() bool { return false }

// changed is a file with another content. One that is missing, or empty, is about to be written.
func (w *Watcher) changed() string {
	for _, file := range w.files {
		now, err := os.ReadFile(file)
		if err == nil && len(now) > 0 && !bytes.Equal(w.content[file], now) {
			return file
		}
	}
	return ""
}
