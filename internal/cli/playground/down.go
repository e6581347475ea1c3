package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	running, err := h.running()
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

// running are the processes that have a pid file and have not ended, whether they are in the state or not.
func (h Home) running() ([]*Process, error) {
	files, err := filepath.Glob(filepath.Join(h.runDir(), "*.json"))
	if err != nil {
		return nil, err
	}
	var running []*Process
	for _, file := range files {
		process, err := h.Process(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			return nil, err
		}
		if process.Running() {
			running = append(running, process)
		}
	}
	return running, nil
}

func stopAll(ctx context.Context, processes []*Process, report Reporter) error {
	errs := make([]error, len(processes))
	var stopping sync.WaitGroup
	for i, process := range processes {
		report.Wait(process.Name, "stopping")
		stopping.Go(func() {
			forced, err := process.Stop(ctx, shutdownGrace)
			switch {
			case err != nil:
				errs[i] = err
			case forced:
				report.Done(process.Name, fmt.Sprintf("killed, it did not stop in %s; its log is %s", shutdownGrace, process.Log))
			default:
				report.Done(process.Name, "stopped")
			}
		})
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// purge removes what is ours and nothing else: the home may have been set to a folder with other things in it.
func (h Home) purge() error {
	for _, ours := range []string{
		h.Kubeconfig(), h.hubDir(), filepath.Dir(h.ClusterDir("any")), h.logDir(), h.runDir(), h.stateFile(), h.lockFile(),
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
