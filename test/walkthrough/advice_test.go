package walkthrough

import (
	"context"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/test/env"
)

// kubectl runs the program of that name, which must succeed, as an administrator of the cluster.
func (c cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	path, err := env.Binary("hyperkube")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), env.WaitTimeout)
	defer cancel()
	out, err := env.Command(ctx, path, append([]string{"kubectl", "--kubeconfig", c.Kubeconfig}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("cluster %s: kubectl %s: %v\n%s", c.Name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// follow runs a command of kubectl that a text advises, with pairs of words of it and what a user puts in for them, and returns what it
// writes.
func (c cluster) follow(t *testing.T, text, command string, pairs ...string) string {
	t.Helper()
	says(t, text, "kubectl "+command)
	return c.kubectl(t, strings.Fields(strings.NewReplacer(pairs...).Replace(command))...)
}
