package realcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/realcluster/node"
)

// envOwner makes the test binary start a cluster and wait to be killed.
const envOwner = "CAPSTAN_TEST_OWNER"

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	if os.Getenv(envOwner) != "" {
		own()
	}
	os.Exit(env.Run(m))
}

func own() {
	c, err := upWithPod(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.nodes[0].Index)
	select {}
}

func upWithPod(ctx context.Context) (*Cluster, error) {
	c, err := Up(ctx, Options{Name: "owned"})
	if err != nil {
		return nil, err
	}
	if err := c.apply(ctx, []byte(shell)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, eventuallyTimeout)
	defer cancel()
	return c, c.poll(ctx, func(ctx context.Context) error {
		var pod corev1.Pod
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: "default", Name: "shell"}, &pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod shell does not run: %s", describePod(&pod))
		}
		return nil
	})
}

// sysctls that a kubelet or a kube-proxy would change for the whole machine.
var sysctls = []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max"}

func TestStopLeavesNothing(t *testing.T) {
	if reason := skipReason(); reason != "" {
		t.Skip(reason)
	}
	before := readSysctls(t)
	c, err := Up(t.Context(), Options{Name: "stopped"})
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, shell)
	c.AwaitPod(t, "default", "shell")
	running := traces(t, c.nodes[0])
	expectEveryKind(t, running)
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if found := left(t, c.nodes[0], running); len(found) > 0 {
		t.Errorf("left: %q", found)
	}
	if pid, found := firstRunning(running); found {
		t.Errorf("process %s runs on", pid)
	}
	if after := readSysctls(t); before != after {
		t.Errorf("settings of the machine were %s and are %s", before, after)
	}
}

// A test that is killed cannot stop its clusters: they end by themselves, and the next one that starts removes what they have left.
func TestKilledOwner(t *testing.T) {
	if reason := skipReason(); reason != "" {
		t.Skip(reason)
	}
	owner := exec.CommandContext(t.Context(), os.Args[0])
	owner.Env, owner.Stderr = env.Environ(envOwner+"=1"), os.Stderr
	output, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	index, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the owner wrote %q", line)
	}
	abandoned := &node.Node{Index: index}
	running := traces(t, abandoned)
	expectEveryKind(t, running)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // it was killed
	env.Eventually(t, func(context.Context) error {
		if pid, found := firstRunning(running); found {
			return fmt.Errorf("process %s runs on", pid)
		}
		return nil
	})
	allocated, err := node.Allocate(t.Context(), []string{"next"})
	if err != nil {
		t.Fatal(err)
	}
	next := allocated[0][0]
	defer func() {
		if err := next.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if found := left(t, abandoned, running); len(found) > 0 {
		t.Errorf("left: %q", found)
	}
}

// expectEveryKind fails if a kind of traces that a running cluster has is not among them.
func expectEveryKind(t *testing.T, running []string) {
	t.Helper()
	for _, kind := range []string{"process", "link", "cgroup", "file"} {
		if !slices.ContainsFunc(running, func(trace string) bool { return strings.HasPrefix(trace, kind) }) {
			t.Errorf("no %s among the traces of a running cluster: %q", kind, running)
		}
	}
}

// left is what is there still of the traces. Another node may have the index by now, and traces of its own.
func left(t *testing.T, n *node.Node, before []string) []string {
	t.Helper()
	return slices.DeleteFunc(traces(t, n), func(trace string) bool { return !slices.Contains(before, trace) })
}

// traces are what there is of a node on the machine. Those of another node with the same index are different.
func traces(t *testing.T, n *node.Node) []string {
	t.Helper()
	var found []string
	for _, pid := range processes(n) {
		found = append(found, "process "+pid)
	}
	if link, err := net.InterfaceByName(fmt.Sprintf("capstan%d", n.Index)); err == nil {
		found = append(found, fmt.Sprintf("link %d", link.Index))
	}
	cgroups, err := filepath.Glob("/sys/fs/cgroup/*" + n.CgroupRoot())
	if err != nil {
		t.Fatal(err)
	}
	for _, cgroup := range cgroups {
		if info, err := os.Stat(cgroup); err == nil {
			found = append(found, fmt.Sprintf("cgroup %s %d", cgroup, inode(info)))
		}
	}
	if first, err := os.ReadFile(n.Path("pid")); err == nil { // which process, and when it started
		found = append(found, fmt.Sprintf("file %s of %s", n.Dir(), first))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, n.Dir()+"/") {
			found = append(found, "mount "+line)
		}
	}
	return found
}

// inode is the number of a file, which no other one of its file system has meanwhile.
func inode(info os.FileInfo) uint64 {
	if stat, is := info.Sys().(*syscall.Stat_t); is {
		return stat.Ino
	}
	return 0
}

// processes of the namespace of the node.
func processes(n *node.Node) []string {
	file, err := os.ReadFile(n.Path("pid"))
	if err != nil {
		return nil
	}
	first, _, _ := strings.Cut(string(file), " ")
	namespace, err := os.Readlink("/proc/" + first + "/ns/pid")
	if err != nil {
		return nil
	}
	var pids []string
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == namespace {
			pids = append(pids, strings.Split(link, "/")[2])
		}
	}
	return pids
}

// firstRunning is a process among the traces that still runs.
func firstRunning(traces []string) (pid string, found bool) {
	for _, trace := range traces {
		if pid, isProcess := strings.CutPrefix(trace, "process "); isProcess && isRunning(pid) {
			return pid, true
		}
	}
	return "", false
}

// isRunning does not count zombies, which wait for their parent.
func isRunning(pid string) bool {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	return err == nil && !strings.Contains(string(status), "\nState:\tZ")
}

func readSysctls(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, name := range sysctls {
		content, err := os.ReadFile("/proc/sys/" + name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s=%s ", name, strings.TrimSpace(string(content)))
	}
	return b.String()
}
