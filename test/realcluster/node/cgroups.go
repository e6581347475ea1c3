package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// hierarchies of cgroups: one with version 2, one for each controller with version 1.
func hierarchies() ([]string, error) {
	const mount = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return []string{mount}, nil
	}
	entries, err := os.ReadDir(mount)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, entry := range entries {
		if entry.IsDir() { // others are second names
			dirs = append(dirs, filepath.Join(mount, entry.Name()))
		}
	}
	return dirs, nil
}

// makeCgroups makes the cgroup of the node's pods in all hierarchies, as the kubelet wants it.
func (n *Node) makeCgroups() error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(dir, n.CgroupRoot()), 0o755); err != nil {
			return err
		}
		// A cpuset of version 1 begins empty, and takes no processes then.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			content, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, n.CgroupRoot(), file), content, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroups removes the cgroups of all pods. Their processes have been killed, but may need a moment to end.
func (n *Node) removeCgroups() error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		err := within(removeTimeout, func() error { return removeTree(filepath.Join(dir, n.CgroupRoot())) })
		if err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a cgroup and those below it: they have files, which cannot be removed, and go without.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		if e := syscall.Rmdir(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, &fs.PathError{Op: "rmdir", Path: dir, Err: e})
		}
	}
	return err
}

// within tries again until there is no error.
func within(timeout time.Duration, try func() error) error {
	deadline := time.After(timeout)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-deadline:
			return err
		case <-ticker.C:
		}
	}
}
