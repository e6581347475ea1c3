// Package restart is for the agents of add-ons: it ends them, so that they are started again, when a file changes that they read only
// once.
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

// ErrChanged is the error with which a Watcher ends when a file has changed.
var ErrChanged = errors.New("has changed: the agent ends, to be started again with it")

// Watcher ends when the content of a file changes. It can be added to a manager of controller-runtime, which then ends, too.
type Watcher struct {
	files   []string
	content map[string][]byte
	changes *filewatch.Watcher
}

// OnChange returns a Watcher of files with their present content: call it before you read them. It fails if a file cannot be read.
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

// NeedLeaderElection returns false: every replica reads its own files.
func (w *Watcher) NeedLeaderElection() bool { return false }

// changed returns the name of a file whose content has changed. A file that is missing or empty is about to be written, and does not
// count.
func (w *Watcher) changed() string {
	for _, file := range w.files {
		now, err := os.ReadFile(file)
		if err == nil && len(now) > 0 && !bytes.Equal(w.content[file], now) {
			return file
		}
	}
	return ""
}
