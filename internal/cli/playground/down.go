package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Down stops every process of the home, all at once, and returns how many there were. With purge it then removes what
// they kept: identities, keys, everything in the databases. A folder that is no home stays as it is.
func (h Home) Down(ctx context.Context, purge bool, report Reporter) (int, error) {
	if exists, err := h.Exists(); err != nil || !exists {
		return 0, err
	}
	unlock, err := h.Lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	running, err := h.Running()
	if err != nil {
		return 0, err
	}
	if err := stopAll(ctx, running, report); err != nil {
		return len(running), err
	}
	if purge {
		return len(running), h.purge(report)
	}
	return len(running), nil
}

// Running are the processes that Down stops, whether they are in the state or not.
func (h Home) Running() ([]*Process, error) { return h.Processes().running() }

// Kept are the files and folders that a purge removes. The kubeconfig stays if it has contexts of a person's own.
func (h Home) Kept() []string {
	files := append(h.dataFolders(), h.Kubeconfig(), h.stateFile(), h.lockFile())
	return slices.DeleteFunc(files, func(file string) bool {
		_, err := os.Lstat(file)
		return err != nil
	})
}

// purge removes what is ours and nothing else: the home may be a folder with other things in it. What shows that it is a home goes last, so
// that a purge that fails can be repeated. It stays one as long as the kubeconfig stays.
func (h Home) purge(report Reporter) error {
	contexts := h.published() // read while there are clusters
	for _, remove := range []func() error{
		func() error { return removeAll(h.hub().dir, h.clustersDir(), h.Processes().logDir()) },
		func() error { return h.withdraw(contexts, report) },
		h.abandon,
	} {
		if err := remove(); err != nil {
			return fmt.Errorf("purge: %w", err)
		}
	}
	if left, err := os.ReadDir(h.Dir); err == nil && len(left) == 0 {
		return os.Remove(h.Dir)
	}
	return nil
}

// abandon removes what shows that the folder is a home, unless it has a kubeconfig with contexts of a person's own: commands refuse folders
// with files of others.
func (h Home) abandon() error {
	if _, err := os.Lstat(h.Kubeconfig()); err == nil {
		return errors.Join(h.Save(State{}), removeAll(h.Processes().runDir(), h.lockFile()))
	}
	return removeAll(h.Processes().runDir(), h.stateFile(), h.lockFile())
}

func removeAll(files ...string) error {
	for _, file := range files {
		if err := os.RemoveAll(file); err != nil {
			return err
		}
	}
	return nil
}
