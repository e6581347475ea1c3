package registration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// A user has 128 inotify instances for all processes by default, and a playground has many.
func TestInotifyInstances(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/fd"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this system has no /proc, which tells what a process has open")
	}
	const cluster = "inotify"
	agent := env.NewAgent(t, framework.Hub, framework.Managed, cluster, "")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, framework.Hub.Client(t), cluster)
	env.AwaitAvailable(t, framework.Hub.Client(t), cluster)
	for _, program := range []struct {
		name string
		*env.Process
		most int
	}{
		{"a hub", framework.Hub.Process, 2},
		{"a sandbox", framework.Managed.Process, 2},
		{"an agent", agent.Process, 1},
	} {
		env.Eventually(t, func(context.Context) error {
			n := inotifyInstances(t, program.Pid())
			if n > program.most {
				t.Errorf("%s has %d inotify instances, want %d at most", program.name, n, program.most)
			} else if n == 0 {
				return fmt.Errorf("%s watches no files", program.name)
			}
			return nil
		})
	}
}

func inotifyInstances(t *testing.T, pid int) (n int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// Files that were closed meanwhile are none.
		if is, err := os.Readlink(file); err == nil && is == "anon_inode:inotify" {
			n++
		}
	}
	return n
}
