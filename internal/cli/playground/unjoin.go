package playground

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Joined finds a cluster that "join" was for. The error says what there is instead.
func (h Home) Joined(cluster string) (Member, error) {
	state, err := h.Load()
	if err != nil {
		return Member{}, err
	}
	var names []string
	for _, joined := range state.Joined {
		if joined.Name == cluster {
			return joined, nil
		}
		names = append(names, joined.Name)
	}
	switch {
	case slices.ContainsFunc(state.Clusters, func(c ClusterState) bool { return c.Name == cluster }):
		return Member{}, fmt.Errorf("cluster %s belongs to the playground in %s: \"capstan down --purge\" removes that as a whole", cluster,
			h.Dir)
	case len(names) == 0:
		return Member{}, fmt.Errorf("no agent was started by \"capstan join --local\" in %s: run the command as the user, and with the %s, that joined cluster %s",
			h.Dir, EnvHome, cluster)
	}
	return Member{}, fmt.Errorf("cluster %s was not joined by \"capstan join --local\" in %s. Those that were: %s", cluster, h.Dir,
		strings.Join(names, ", "))
}

// JoinedNames are the names of the clusters that "join" was for.
func (h Home) JoinedNames() ([]string, error) {
	state, err := h.Load()
	var names []string
	for _, joined := range state.Joined {
		names = append(names, joined.Name)
	}
	return names, err
}

// AgentName is who the agent of a cluster is among those of its name on the hub; empty if it never ran.
func (h Home) AgentName(cluster string) (string, error) {
	name, err := os.ReadFile(filepath.Join(h.agentDir(cluster), fleet.KeyAgentName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(name)), err
}

// AgentRuns tells whether the agent of a cluster runs.
func (h Home) AgentRuns(cluster string) (bool, error) {
	process, err := h.Process(agentProcess(cluster))
	return err == nil && process.Running(), err
}

// StopAgent stops the agent of a cluster, if it runs.
func (h Home) StopAgent(ctx context.Context, cluster string, report Reporter) error {
	unlock, err := h.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	process, err := h.Process(agentProcess(cluster))
	if err != nil || !process.Running() {
		return err
	}
	return stopAll(ctx, []*Process{process}, report)
}

// Forget removes what an agent has kept: its identity, its key, its log. It refuses while the agent runs.
func (h Home) Forget(cluster string) error {
	unlock, err := h.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	process, err := h.Process(agentProcess(cluster))
	if err != nil {
		return err
	}
	if process.Running() {
		return fmt.Errorf("the agent of cluster %s has been started again meanwhile, as process %d: run the command again", cluster, process.PID)
	}
	log := h.logFile(agentProcess(cluster))
	for _, file := range []string{h.ClusterDir(cluster), log, previous(log), h.pidFile(agentProcess(cluster))} {
		if err := os.RemoveAll(file); err != nil {
			return fmt.Errorf("remove what the agent of cluster %s has kept: %w", cluster, err)
		}
	}
	state, err := h.Load()
	if err != nil {
		return err
	}
	state.Joined = slices.DeleteFunc(state.Joined, func(m Member) bool { return m.Name == cluster })
	return h.Save(state)
}
