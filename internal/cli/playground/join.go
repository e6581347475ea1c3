package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/joinrequests"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
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

// Registration is an agent that was started, of which a hub is to hear.
type Registration struct {
	Enrolment

	Hub   *hubapi.Hub
	Agent *Process
	// Earlier are the certificate requests of the cluster that the hub had before the agent was started.
	Earlier map[string]bool
}

// Await returns once the agent itself has asked the hub to join, or works there: the cluster may be there from before. It fails when the
// agent dies, and with a joinrequests.InvisibleError where the hub does not show what the agent does.
func (h Home) Await(ctx context.Context, r Registration) error {
	ctx, release := cancelOnExit(ctx, r.Agent)
	defer release()
	err := managedclusters.Wait(ctx, r.Hub, r.Member.Name, exists)
	if err == nil {
		err = h.registering(r).AwaitRegistered(ctx, r.Hub)
	}
	var invisible *joinrequests.InvisibleError
	if err == nil || errors.As(err, &invisible) {
		return err
	}
	return processExitOr(ctx, err, r.Agent)
}

// registering is the agent as the hub knows it. It chooses its name when it runs for the first time.
func (h Home) registering(r Registration) joinrequests.Agent {
	cluster := r.Member.Name
	agent := joinrequests.Agent{Cluster: cluster, Earlier: r.Earlier, User: func() string {
		if name, err := h.AgentName(cluster); err == nil && name != "" {
			return fleet.ClusterUser(cluster, name)
		}
		return ""
	}}
	certificate, err := os.ReadFile(filepath.Join(h.agentDir(cluster), fleet.KeyTLSCert))
	if err != nil {
		return agent
	}
	key, err := os.ReadFile(filepath.Join(h.agentDir(cluster), fleet.KeyTLSKey))
	if err != nil {
		return agent
	}
	if hub, err := r.Invitation.HubAs(r.Trust, certificate, key); err == nil { // one that cannot be used is replaced by a request
		agent.Credential = hub
	}
	return agent
}

// AwaitDetached does the same as Await for an agent whose log nobody sees, and reports the problems in that.
func (h Home) AwaitDetached(ctx context.Context, r Registration, report Reporter) error {
	problems := followLog(r.Agent, true)
	return waitReportingReasons(ctx, report, r.Member.Name, func(context.Context) string { return problems.describe("") },
		func(ctx context.Context) error { return h.Await(ctx, r) })
}
