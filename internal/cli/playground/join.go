package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/joinrequests"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Registration is the agent of a cluster of the user's own that joins a hub.
type Registration struct {
	Agent      Agent
	Invitation hubapi.Invitation
	Trust      hubapi.Trust
	Hub        *hubapi.Hub
	// Background says that the agent is to run in the background.
	Background bool
	// Earlier are the certificate requests of the cluster that the hub had before the agent was started.
	Earlier map[string]bool
	// Process is that of the agent, once it is started.
	Process *Process
}

// Prepare writes what the agent needs and returns the program to run. It refuses a name that the home has in use, but for the same agent in
// the background: one that runs there takes up a changed bootstrap kubeconfig, and goes on.
func (r *Registration) Prepare() (Program, error) {
	home, cluster := r.Agent.home, r.Agent.cluster.Name
	unlock, err := home.Lock()
	if err != nil {
		return Program{}, err
	}
	defer unlock()
	state, err := home.Load()
	if err != nil {
		return Program{}, err
	}
	if slices.ContainsFunc(state.Clusters, func(c ClusterState) bool { return c.Name == cluster }) {
		return Program{}, fmt.Errorf("--cluster-name: %s is a cluster of the playground in %s: choose another name, or set %s to another folder",
			cluster, home.Dir, EnvHome)
	}
	running, err := r.Agent.process()
	if err != nil {
		return Program{}, err
	}
	goesOn := r.Background && slices.Contains(state.Joined, r.Agent.cluster)
	if running.Running() && !goesOn {
		return Program{}, fmt.Errorf("the agent of cluster %s runs already, as process %d; its log is %s\n"+
			"To join again, stop it first: kill %d", cluster, running.PID, running.Log, running.PID)
	}
	if err := r.Agent.writeBootstrapKubeconfig(r.Invitation, r.Trust); err != nil {
		return Program{}, err
	}
	return r.Agent.Program()
}

// Detach starts the program of the agent in the background and saves the cluster: "up" starts it again, "down" stops it.
func (r *Registration) Detach(program Program) error {
	unlock, err := r.Agent.home.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.Agent.record(); err != nil {
		return err
	}
	r.Process, _, err = r.Agent.home.Processes().Start(program)
	return err
}

// Attach runs the program of the agent as a child that writes to logs, and saves the cluster for "unjoin". It is sent SIGTERM when the
// context ends.
func (r *Registration) Attach(ctx context.Context, program Program, logs io.Writer) error {
	unlock, err := r.Agent.home.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	r.Agent.cluster.Foreground = true
	if err := r.Agent.record(); err != nil {
		return err
	}
	r.Process, err = r.Agent.home.Processes().attach(ctx, program, logs)
	return err
}

// Await returns once the agent itself has requested to join the hub, or works there: the cluster may be there from before. It fails when
// the agent dies, and with a joinrequests.InvisibleError where the hub does not show what the agent does.
func (r *Registration) Await(ctx context.Context) error {
	ctx, release := cancelOnExit(ctx, r.Process)
	defer release()
	err := managedclusters.Wait(ctx, r.Hub, r.Agent.cluster.Name, exists)
	if err == nil {
		err = r.onHub().AwaitRegistered(ctx, r.Hub)
	}
	var invisible *joinrequests.InvisibleError
	if err == nil || errors.As(err, &invisible) {
		return err
	}
	return processExitOr(ctx, err, r.Process)
}

// onHub is the agent as the hub knows it. It chooses its name when it runs for the first time.
func (r *Registration) onHub() joinrequests.Agent {
	cluster := r.Agent.cluster.Name
	agent := joinrequests.Agent{Cluster: cluster, Earlier: r.Earlier, User: func() string {
		if name, err := r.Agent.Name(); err == nil && name != "" {
			return fleet.ClusterUser(cluster, name)
		}
		return ""
	}}
	certificate, err := os.ReadFile(filepath.Join(r.Agent.dir(), fleet.KeyTLSCert))
	if err != nil {
		return agent
	}
	key, err := os.ReadFile(filepath.Join(r.Agent.dir(), fleet.KeyTLSKey))
	if err != nil {
		return agent
	}
	if hub, err := r.Invitation.HubAs(r.Trust, certificate, key); err == nil { // one that cannot be used is replaced by a request
		agent.Credential = hub
	}
	return agent
}

// AwaitDetached does the same as Await for an agent whose log nobody sees, and reports the problems in that.
func (r *Registration) AwaitDetached(ctx context.Context, report Reporter) error {
	started := r.Process.exited != nil // as a child of this command
	problems := followLog(r.Process, started)
	return waitReportingReasons(ctx, report, r.Agent.cluster.Name, func(context.Context) string { return problems.describe("") }, r.Await)
}
