package agent

import (
	"context"
	"errors"
	"os"

	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

// errNewWay ends the connection to a hub because the hub kubeconfig has changed: it has another address, another proxy or another CA. A
// renewed certificate changes files next to it, which clients read again by themselves.
var errNewWay = errors.New("the hub kubeconfig changed")

// way is the hub kubeconfig that a connection uses. It is a manager's Runnable.
type way struct {
	file    string
	content string
	changes *filewatch.Watcher
}

func (a *Agent) readWay() *way {
	w := &way{file: a.store.HubFile()}
	w.changes = filewatch.New(func() []string { return []string{w.file} })
	w.content = w.read()
	return w
}

// read is empty if there is no hub kubeconfig any more, which the rotation of certificates sees too.
func (w *way) read() string {
	content, err := os.ReadFile(w.file)
	if err != nil {
		return ""
	}
	return string(content)
}

// Start returns errNewWay when the file says something new.
func (w *way) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	w.changes.Run(ctx, func() {
		if now := w.read(); now != "" && now != w.content {
			err = errNewWay
			cancel()
		}
	})
	return err
}
