package playground

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// Enrolment is an agent that joins a cluster of somebody else's to a hub.
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

// Detach starts the program of an enrolment in the background and remembers it: "up" starts it again, "down" stops it.
func (h Home) Detach(program Program, e Enrolment) (*Process, error) {
	unlock, err := h.Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	state, err := h.Load()
	if err != nil {
		return nil, err
	}
	state.Joined = slices.DeleteFunc(state.Joined, func(j Member) bool { return j.Name == e.Member.Name })
	state.Joined = append(state.Joined, e.Member)
	if err := h.Save(state); err != nil {
		return nil, err
	}
	process, _, err := h.Start(program)
	return process, err
}

// AwaitCluster returns once the agent has created its ManagedCluster on the hub. It fails when the agent dies.
func AwaitCluster(ctx context.Context, hub *hubapi.Hub, cluster string, agent *Process) error {
	ctx, release := guard(ctx, agent)
	defer release()
	if err := hub.WaitForCluster(ctx, cluster, exists); err != nil {
		return blame(err, agent)
	}
	return nil
}
