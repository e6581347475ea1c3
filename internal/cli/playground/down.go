package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Down stops every process of the home, all at once, and returns how many there were. With purge it then removes what
// they kept: identities, keys, everything in the databases.
func (h Home) Down(ctx context.Context, purge bool, report Reporter) (int, error) {
	if _, err := os.Stat(h.Dir); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	unlock, err := h.Lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	running, err := h.Processes().running()
	if err != nil {
		return 0, err
	}
	if err := stopAll(ctx, running, report); err != nil {
		return len(running), err
	}
	if purge {
		return len(running), h.purge()
	}
	return len(running), nil
}

// purge removes what is ours and nothing else: the home may have been set to a folder with other things in it.
func (h Home) purge() error {
	processes := h.Processes()
	for _, ours := range []string{
		h.Kubeconfig(), h.hub().dir, filepath.Dir(h.ClusterDir("any")), processes.logDir(), processes.runDir(), h.stateFile(), h.lockFile(),
	} {
		if err := os.RemoveAll(ours); err != nil {
			return fmt.Errorf("purge: %w", err)
		}
	}
	if left, err := os.ReadDir(h.Dir); err == nil && len(left) == 0 {
		return os.Remove(h.Dir)
	}
	return nil
}
