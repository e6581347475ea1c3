package playground

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Exists reports whether commands of ours have made the folder a home: it has the state, or, where that is lost, a pid file of ours.
func (h Home) Exists() (bool, error) {
	_, err := os.Stat(h.stateFile())
	switch {
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("look for a playground: %w: set %s to a folder of your own", err, EnvHome)
	}
	names, err := h.Processes().names()
	if err != nil {
		return false, err
	}
	for _, name := range names {
		process, err := h.Processes().get(name)
		if err == nil && len(process.Command) > 0 {
			return true, nil
		}
	}
	return h.hasFormerJoin()
}

// hasFormerJoin reports whether a join of an earlier version failed here, which left its kubeconfig and the lock alone.
func (h Home) hasFormerJoin() (bool, error) {
	joined, err := fs.Glob(os.DirFS(h.Dir), "clusters/*/bootstrap-kubeconfig")
	if err != nil || len(joined) == 0 {
		return false, err
	}
	lock, err := os.Stat(h.lockFile())
	return err == nil && lock.Size() == 0, nil
}

// CheckOwner fails if the folder is no home and has something that a home has, too: "down --purge" would remove it one day.
func (h Home) CheckOwner() error {
	found, err := h.data()
	if err != nil || len(found) == 0 {
		return err
	}
	exists, err := h.Exists() // read last: a home has its state before anything else
	if err != nil || exists {
		return err
	}
	return fmt.Errorf("%s: %s has %s, which no capstan command has put there: set %s to another folder, such as an empty one",
		EnvHome, h.Dir, strings.Join(baseNames(found), ", "), EnvHome)
}

// data are the files and folders of a home that are there and not empty, but for the state and the lock.
func (h Home) data() ([]string, error) {
	var found []string
	for _, file := range append(h.dataFolders(), h.Kubeconfig()) {
		info, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for a playground: %w: set %s to a folder of your own", err, EnvHome)
		}
		if entries, err := os.ReadDir(file); info.IsDir() && err == nil && len(entries) == 0 {
			continue
		}
		found = append(found, file)
	}
	return found, nil
}

// dataFolders are those that everything but the kubeconfig is in.
func (h Home) dataFolders() []string {
	return []string{h.hub().dir, h.clustersDir(), h.Processes().logDir(), h.Processes().runDir()}
}

func baseNames(files []string) []string {
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = filepath.Base(file)
	}
	return names
}

// claim makes the folder a home. The caller has locked it.
func (h Home) claim() error {
	exists, err := h.Exists()
	if err != nil || exists {
		return err
	}
	return h.Save(State{})
}
