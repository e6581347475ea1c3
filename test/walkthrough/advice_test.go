package walkthrough

import (
	"strings"
	"testing"
)

// kubectl runs the program of that name, which must succeed, as an administrator of the cluster.
func (c cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := runCommand(t, "hyperkube", c.Kubeconfig, c.home, append([]string{"kubectl"}, args...)...)
	if err != nil {
		t.Fatalf("cluster %s: %v", c.Name, err)
	}
	return out
}

// follow runs a command of kubectl that a text advises, with pairs of words of it and what a user puts in for them, and returns what it
// writes.
func (c cluster) follow(t *testing.T, text, command string, pairs ...string) string {
	t.Helper()
	says(t, text, "kubectl "+command)
	return c.kubectl(t, strings.Fields(strings.NewReplacer(pairs...).Replace(command))...)
}
