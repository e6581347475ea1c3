package playground

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// recorder is a Reporter for tests.
type recorder struct {
	mu             sync.Mutex
	done, warnings []string
}

func (r *recorder) Wait(string, string) {}

func (r *recorder) Done(subject, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, subject+": "+what)
}

func (r *recorder) Warn(subject, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = append(r.warnings, subject+": "+what)
}

func TestDown(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	for _, name := range []string{"hub", "cluster1-sandbox"} {
		start(t, home, shell(t, name, "exec sleep 1000"))
	}
	gone := start(t, home, shell(t, "cluster1-agent", "exit 0"))
	if err := gone.WaitExit(t.Context()); err != nil {
		t.Fatal(err)
	}
	report := &recorder{}
	stopped, err := home.Down(t.Context(), false, report)
	if err != nil || stopped != 2 {
		t.Errorf("stopped %d, error %v, want 2", stopped, err)
	}
	slices.Sort(report.done)
	if got := strings.Join(report.done, ", "); got != "cluster1-sandbox: stopped, hub: stopped" {
		t.Errorf("reported %s", got)
	}
	if stopped, err := home.Down(t.Context(), true, report); err != nil || stopped != 0 {
		t.Errorf("the second time: stopped %d, error %v", stopped, err)
	}
	if _, err := os.Stat(home.Dir); !os.IsNotExist(err) {
		t.Errorf("the home is left after a purge: %v", err)
	}
	if stopped, err := home.Down(t.Context(), true, report); err != nil || stopped != 0 {
		t.Errorf("without a home: stopped %d, error %v", stopped, err)
	}
}

// CAPSTAN_HOME is a path, and no pattern: "down" finds what runs in it, and a purge removes nothing below a process.
func TestDownInAnyFolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"my [test]", "a[b", "all*", "what?", `back\slash`} {
		home := homeIn(t, filepath.Join(t.TempDir(), name, "home"))
		start(t, home, shell(t, "hub", "exec sleep 1000"))
		if stopped, err := home.Down(t.Context(), true, &recorder{}); err != nil || stopped != 1 {
			t.Errorf("%s: stopped %d, error %v", name, stopped, err)
		}
	}
}

// An interrupted "down" leaves processes that are stopping. They do not count as running, and are not signalled twice.
func TestUpAwaitsStopping(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	// It works in the home. Upon SIGTERM, it waits until it may.
	process := start(t, home, shell(t, "hub",
		"trap 'echo x >> asked; until [ -e may ]; do sleep 0.02; done; exit' TERM; echo ready; while :; do sleep 0.02; done"))
	if !eventually(t, func() bool { return strings.Contains(process.tail(), "ready") }) {
		t.Fatal("the process does not start")
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := home.Down(interrupted, false, &recorder{}); err == nil {
		t.Fatal("an interrupted down succeeded")
	}
	if err := os.WriteFile(filepath.Join(home.Dir, "may"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	report := &recorder{}
	if err := home.Processes().awaitStopping(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	if reread(t, home, "hub").Running() {
		t.Error("the process still runs")
	}
	if content, _ := os.ReadFile(filepath.Join(home.Dir, "asked")); string(content) != "x\n" {
		t.Errorf("it was asked to stop %q", content)
	}
	if got := strings.Join(report.done, ", "); got != "hub: stopped" {
		t.Errorf("reported %q", got)
	}
}

func TestStatusOfProcesses(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	if status, err := home.Status(t.Context()); err != nil || status.Exists() {
		t.Errorf("status of an empty home: %+v, error %v", status, err)
	}
	state := State{Hub: &HubState{Port: 1}, Clusters: []ClusterState{{Name: "cluster1", Port: 2}}, Joined: []Member{{Name: "far"}}}
	if err := home.Save(state); err != nil {
		t.Fatal(err)
	}
	running := start(t, home, shell(t, "far-agent", "exec sleep 1000"))
	status, err := home.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(status.Down(), " "); got != "hub cluster1-sandbox cluster1-agent" {
		t.Errorf("down: %s", got)
	}
	far := status.Processes[3]
	if far.PID != running.PID || far.RSSBytes == 0 || far.StartedAt == nil || far.Log != running.Log {
		t.Errorf("status of a running process: %+v", far)
	}
	if status.Problem == "" {
		t.Error("nothing says why there are no clusters")
	}
}

// A join must not take over what the playground or another agent uses.
func TestEnrolRefuses(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	if err := home.Save(State{Clusters: []ClusterState{{Name: "cluster1"}}}); err != nil {
		t.Fatal(err)
	}
	start(t, home, shell(t, "far-agent", "exec sleep 1000"))
	for cluster, want := range map[string]string{"cluster1": "cluster of the playground", "far": "runs already"} {
		r := Registration{Agent: home.Agent(Member{Name: cluster}), Invitation: hubapi.Invitation{Server: "https://hub", Token: "t"}}
		_, err := r.Prepare()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", cluster, err, want)
		}
		if _, err := os.Stat(r.Agent.bootstrapKubeconfig()); !os.IsNotExist(err) {
			t.Errorf("%s: a bootstrap kubeconfig was written: %v", cluster, err)
		}
	}
}

// CA-17: an agent in the background takes up another hub, or another credential, without being stopped.
func TestJoinsAgainInTheBackground(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	far, attached := Member{Name: "far", Kubeconfig: "/far/kubeconfig"}, Member{Name: "attached", Kubeconfig: "/kubeconfig", Foreground: true}
	if err := home.Save(State{Joined: []Member{far, attached}}); err != nil {
		t.Fatal(err)
	}
	start(t, home, shell(t, "far-agent", "exec sleep 1000"))
	start(t, home, shell(t, "attached-agent", "exec sleep 1000"))
	for name, test := range map[string]struct {
		of                  Member
		background, refused bool
	}{
		"another cluster":                {Member{Name: "far", Kubeconfig: "/another/kubeconfig"}, true, true},
		"in a terminal":                  {far, false, true},
		"one that runs in a terminal":    {Member{Name: "attached", Kubeconfig: "/kubeconfig"}, true, true},
		"the same one in the background": {far, true, false},
	} {
		r := Registration{Agent: home.Agent(test.of), Background: test.background,
			Invitation: hubapi.Invitation{Server: "https://hub", Token: "t"}}
		_, err := r.Prepare() // the program of the agent need not be there
		if refused := err != nil && strings.Contains(err.Error(), "runs already"); refused != test.refused {
			t.Errorf("%s: refused %t, want %t: %v", name, refused, test.refused, err)
		}
		if _, err := os.Stat(r.Agent.bootstrapKubeconfig()); !test.refused && err != nil {
			t.Errorf("%s: no bootstrap kubeconfig was written: %v", name, err)
		}
	}
}

func TestDetachIsRemembered(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	far := Member{Name: "far", Kubeconfig: "/far/kubeconfig", URL: "https://far"}
	r := Registration{Agent: home.Agent(far)}
	for range 2 {
		if err := r.Detach(shell(t, "far-agent", "exit 0")); err != nil {
			t.Fatal(err)
		}
		if err := r.Process.WaitExit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	state, err := home.Load()
	if err != nil || len(state.Joined) != 1 || state.Joined[0] != far {
		t.Errorf("remembered %+v, error %v", state.Joined, err)
	}
}

// "up" leaves an agent alone that a person runs in a terminal; "down" and "status" see it while it runs.
func TestAttachIsRemembered(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := Registration{Agent: home.Agent(Member{Name: "far", Kubeconfig: "/far/kubeconfig"})}
	if err := r.Attach(ctx, shell(t, "far-agent", "exec sleep 1000"), io.Discard); err != nil {
		t.Fatal(err)
	}
	state, err := home.Load()
	if err != nil || len(state.Joined) != 1 || !state.Joined[0].Foreground || len(state.background()) != 0 {
		t.Errorf("remembered %+v, error %v", state.Joined, err)
	}
	if _, err := r.Prepare(); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second agent of the cluster: error %v", err)
	}
	status, err := home.Status(t.Context())
	if err != nil || len(status.Processes) != 1 || status.Processes[0].PID != r.Process.PID {
		t.Errorf("status %+v, error %v", status.Processes, err)
	}
	if err := r.Agent.Remove(); err == nil || !strings.Contains(err.Error(), "run the command again") {
		t.Errorf("forgot a running agent: error %v", err)
	}
	if err := r.Agent.Stop(t.Context(), &recorder{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Process.Result(); err == nil {
		t.Error("it ended by itself")
	}
	if status, err := home.Status(t.Context()); err != nil || status.Exists() {
		t.Errorf("status of a stopped agent that a person runs: %+v, error %v", status.Processes, err)
	}
}
