package walkthrough

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/realcluster"
)

// tutorial does what the tutorial of docs/reaching-clusters.md says, word by word, with kubectl itself. The hub cannot connect to the
// cluster.
func (p plane) tutorial(t *testing.T, edge cluster) {
	t.Helper()
	p.cannotConnect(t, edge.Cluster)
	edge.ImportTestImage(t, "docker.io/library/busybox:1.37")
	work, rights, log := tutorialOfReaching(t)
	u := newUser(t, p.kubeconfig(t))
	u.does(t, work)
	u.does(t, rights)
	out := u.does(t, log)
	says(t, out, "clock-")
	if n := strings.Count(out, "it is "); n != 2 {
		t.Errorf("kubectl and capstan print %d lines of the log, not one each:\n%s", n, out)
	}
	u.does(t, "capstan delete work clock --clusters edge\nkubectl delete clusterpermission administrators-of-the-hub -n edge")
}

// cannotConnect has the hub begin no connection to the cluster.
func (p plane) cannotConnect(t *testing.T, edge *realcluster.Cluster) {
	t.Helper()
	for _, chain := range []string{"OUTPUT", "FORWARD"} {
		if _, err := p.hosting.NodeExec(t.Context(), "iptables", "--wait", "-I", chain, "-d", edge.NodeIP, "-m", "conntrack", "--ctstate", "NEW",
			"-j", "REJECT"); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := p.hosting.NodeExec(t.Context(), "busybox", "nc", edge.NodeIP, "6443"); err == nil {
		t.Fatalf("the node of the hub connects to that of the cluster: %s", out)
	}
}

// tutorialOfReaching has the commands of the tutorial: for something to look at, for rights, and for its log.
func tutorialOfReaching(t *testing.T) (work, rights, log string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reaching-clusters.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## A tutorial: the log of a pod behind NAT\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, rest := range strings.Split(section, "\n```sh\n")[1:] {
		block, _, _ := strings.Cut(rest, "\n```\n")
		blocks = append(blocks, block)
	}
	if len(blocks) != 3 {
		t.Fatalf("the tutorial has %d blocks of commands, not 3", len(blocks))
	}
	return blocks[0], blocks[1], blocks[2]
}

// user is one of a shell, who is in a folder of their own.
type user struct{ kubeconfig, dir, path string }

func newUser(t *testing.T, kubeconfig string) user {
	t.Helper()
	return user{kubeconfig: kubeconfig, dir: t.TempDir(), path: programs(t)}
}

// programs is a folder with capstan, kubectl, and testpod for requests by HTTP.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, command := range map[string][]string{"capstan": {"capstan"}, "kubectl": {"hyperkube", "kubectl"}, "testpod": {"testpod"}} {
		path, err := env.Binary(command[0])
		if err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", path, strings.Join(command[1:], " "))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// does runs commands in a shell, all of which must succeed, and returns what they write.
func (u user) does(t *testing.T, commands string) string {
	t.Helper()
	out, err := u.try(t.Context(), commands)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try runs commands in a shell, which ends at the first that fails, and returns what they write.
func (u user) try(ctx context.Context, commands string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-ec", commands)
	shell.Dir = u.dir
	shell.Env = env.Environ("KUBECONFIG="+u.kubeconfig, "HOME="+u.dir, "CAPSTAN_HOME="+u.dir, "PATH="+u.path+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s\n%w\n%s", commands, err, out)
	}
	return string(out), nil
}
