package playground

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Agent is the agent of a cluster: what the home keeps for it, and its process.
type Agent struct {
	home    Home
	cluster Member
}

func agentProcess(cluster string) string { return cluster + "-agent" }

// dir is where the agent keeps its access to the hub.
func (a Agent) dir() string { return filepath.Join(a.home.ClusterDir(a.cluster.Name), "agent") }

// HasJoined reports whether an agent of the home has been the agent of the cluster before.
func (a Agent) HasJoined() bool {
	_, err := os.Stat(a.dir())
	return err == nil
}

// NameFile has the name of the agent, once it runs.
func (a Agent) NameFile() string { return filepath.Join(a.dir(), fleet.KeyAgentName) }

// Name is who the agent is among those of its cluster on the hub; empty if it never ran.
func (a Agent) Name() (string, error) {
	name, err := os.ReadFile(a.NameFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(name)), err
}

// Program runs the agent.
func (a Agent) Program() (Program, error) {
	path, err := FindProgram(agentBinary)
	if err != nil {
		return Program{}, err
	}
	args := []string{
		"run", "--cluster-name", a.cluster.Name,
		"--bootstrap-kubeconfig", a.bootstrapKubeconfig(),
		"--spoke-kubeconfig", a.cluster.Kubeconfig,
		"--hub-kubeconfig-dir", a.dir(),
	}
	if a.cluster.URL != "" {
		args = append(args, "--spoke-external-server-urls", a.cluster.URL)
	}
	return Program{Name: agentProcess(a.cluster.Name), Path: path, Args: args}, nil
}

func (a Agent) process() (*Process, error) {
	return a.home.Processes().get(agentProcess(a.cluster.Name))
}

// Running reports whether the agent runs.
func (a Agent) Running() (bool, error) {
	process, err := a.process()
	return err == nil && process.Running(), err
}

func (a Agent) bootstrapKubeconfig() string {
	return filepath.Join(a.home.ClusterDir(a.cluster.Name), "bootstrap-kubeconfig")
}

// writeBootstrapKubeconfig writes what the agent joins with.
func (a Agent) writeBootstrapKubeconfig(invitation hubapi.Invitation, trust hubapi.Trust) error {
	content, err := clientcmd.Write(*invitation.Kubeconfig(trust))
	if err != nil {
		return err
	}
	return WriteSecretFile(a.bootstrapKubeconfig(), content)
}

// HubURL is where the agent joined a hub before; empty if it never did.
func (a Agent) HubURL() string {
	kubeconfig, err := os.ReadFile(a.bootstrapKubeconfig())
	if err != nil { // it never joined, or the file is written anew
		return ""
	}
	return hubapi.ServerIn(kubeconfig)
}

// hasCredential reports whether the agent has joined a hub.
func (a Agent) hasCredential() bool {
	_, err := os.Stat(filepath.Join(a.dir(), fleet.KeyKubeconfig))
	return err == nil
}

// removeCredential removes the access to the hub, but not the name of the agent, by which it recognizes what it has applied.
func (a Agent) removeCredential() error {
	for _, key := range []string{fleet.KeyKubeconfig, fleet.KeyTLSCert, fleet.KeyTLSKey} {
		if err := os.Remove(filepath.Join(a.dir(), key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the certificate of cluster %s: %w", a.cluster.Name, err)
		}
	}
	return nil
}

// record adds the cluster to those that "join" was for. The caller has locked the home.
func (a Agent) record() error {
	state, err := a.home.Load()
	if err != nil {
		return err
	}
	state.Joined = append(state.without(a.cluster.Name), a.cluster)
	return a.home.Save(state)
}

// Stop stops the agent, if it runs.
func (a Agent) Stop(ctx context.Context, report Reporter) error {
	unlock, err := a.home.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	process, err := a.process()
	if err != nil || !process.Running() {
		return err
	}
	return stopAll(ctx, []*Process{process}, report)
}

// Remove removes what the agent has kept: its identity, its key, its log. It refuses while the agent runs.
func (a Agent) Remove() error {
	unlock, err := a.home.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	process, err := a.process()
	if err != nil {
		return err
	}
	cluster := a.cluster.Name
	if process.Running() {
		return fmt.Errorf("the agent of cluster %s has been started again meanwhile, as process %d: run the command again", cluster, process.PID)
	}
	log, pidFile := a.home.Processes().logFile(agentProcess(cluster)), a.home.Processes().pidFile(agentProcess(cluster))
	for _, file := range []string{a.home.ClusterDir(cluster), log, previous(log), pidFile} {
		if err := os.RemoveAll(file); err != nil {
			return fmt.Errorf("remove what the agent of cluster %s has kept: %w", cluster, err)
		}
	}
	state, err := a.home.Load()
	if err != nil {
		return err
	}
	state.Joined = state.without(cluster)
	return a.home.Save(state)
}
