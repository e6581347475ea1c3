package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
)

// Enrolment is an agent that joins a cluster of the user's own to a hub.
type Enrolment struct {
	Member     Member
	Invitation hubapi.Invitation
	Trust      hubapi.Trust
}

// Enrol writes what the agent needs and returns the program to run. It refuses a name that the home has in use.
func (h Home) Enrol(e Enrolment) (Program, error) {
	unlock, err := h.Lock()
	if err != nil {
		return Program{}, err
	}
	defer unlock()
	state, err := h.Load()
	if err != nil {
		return Program{}, err
	}
	if slices.ContainsFunc(state.Clusters, func(c ClusterState) bool { return c.Name == e.Member.Name }) {
		return Program{}, fmt.Errorf("--cluster-name: %s is a cluster of the playground in %s: choose another name, or set %s to another folder",
			e.Member.Name, h.Dir, EnvHome)
	}
	running, err := h.Process(agentProcess(e.Member.Name))
	if err != nil {
		return Program{}, err
	}
	if running.Running() {
		return Program{}, fmt.Errorf("the agent of cluster %s runs already, as process %d; its log is %s\n"+
			"To join again, stop it first: kill %d", e.Member.Name, running.PID, running.Log, running.PID)
	}
	if err := h.WriteBootstrapKubeconfig(e.Member.Name, e.Invitation, e.Trust); err != nil {
		return Program{}, err
	}
	return h.AgentProgram(e.Member)
}

// Enrolled tells whether an agent of this home has been the agent of the cluster before.
func (h Home) Enrolled(cluster string) bool {
	_, err := os.Stat(h.agentDir(cluster))
	return err == nil
}

// Detach starts the program of an enrolment in the background and saves it: "up" starts it again, "down" stops it.
func (h Home) Detach(program Program, e Enrolment) (*Process, error) {
	unlock, err := h.Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := h.remember(e.Member); err != nil {
		return nil, err
	}
	process, _, err := h.Start(program)
	return process, err
}

// remember adds a joined cluster to the state, which the caller has locked.
func (h Home) remember(member Member) error {
	state, err := h.Load()
	if err != nil {
		return err
	}
	state.Joined = slices.DeleteFunc(state.Joined, func(j Member) bool { return j.Name == member.Name })
	state.Joined = append(state.Joined, member)
	return h.Save(state)
}

// Attach runs the program of an enrolment as a child that writes to logs, and saves it for "unjoin". It is sent SIGTERM when the context
// ends.
func (h Home) Attach(ctx context.Context, program Program, e Enrolment, logs io.Writer) (*Process, error) {
	unlock, err := h.Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	e.Member.Foreground = true
	if err := h.remember(e.Member); err != nil {
		return nil, err
	}
	process, err := program.attach(ctx, logs)
	if err != nil {
		return nil, err
	}
	process.file = h.pidFile(program.Name)
	if err := process.save(); err != nil {
		return nil, errors.Join(fmt.Errorf("write the pid file of %s: %w", program.Name, err), process.signal(syscall.SIGKILL))
	}
	return process, nil
}

// AwaitCluster returns once the agent has created its ManagedCluster on the hub. It fails when the agent dies.
func AwaitCluster(ctx context.Context, hub *hubapi.Hub, cluster string, agent *Process) error {
	ctx, release := cancelOnExit(ctx, agent)
	defer release()
	if err := managedclusters.Wait(ctx, hub, cluster, exists); err != nil {
		return processExitOr(ctx, err, agent)
	}
	return nil
}

// AwaitDetached does the same for an agent whose log nobody sees, and reports the problems in that.
func AwaitDetached(ctx context.Context, hub *hubapi.Hub, cluster string, agent *Process, report Reporter) error {
	problems := followLog(agent, true)
	return waitReportingReasons(ctx, report, cluster, func(context.Context) string { return problems.describe("") },
		func(ctx context.Context) error { return AwaitCluster(ctx, hub, cluster, agent) })
}
