package agent

import (
	"context"
	"errors"
	"os"

	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

// errHubKubeconfigChanged ends the connection to a hub because the hub kubeconfig has changed: it has another address, another proxy or
// another CA. A renewed certificate changes files next to it, which clients read again by themselves.
var errHubKubeconfigChanged = errors.New("the hub kubeconfig changed")

// hubKubeconfig is the hub kubeconfig that a connection uses. It is a manager's Runnable.
type hubKubeconfig struct {
	file    string
	content string
	changes *filewatch.Watcher
}

func (a *Agent) watchHubKubeconfig() *hubKubeconfig {
	k := &hubKubeconfig{file: a.store.HubFile()}
	k.changes = filewatch.New(func() []string { return []string{k.file} })
	k.content = k.read()
	return k
}

// read is empty if there is no hub kubeconfig any more, which the rotation of certificates sees too.
func (k *hubKubeconfig) read() string {
	content, err := os.ReadFile(k.file)
	if err != nil {
		return ""
	}
	return string(content)
}

// Start returns errHubKubeconfigChanged when the file says something new.
func (k *hubKubeconfig) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	k.changes.Run(ctx, func() {
		if now := k.read(); now != "" && now != k.content {
			err = errHubKubeconfigChanged
			cancel()
		}
	})
	return err
}
