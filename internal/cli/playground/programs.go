package playground

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"
)

// Names of our processes in a home.
const hubProcess = "hub"

func sandboxProcess(cluster string) string { return cluster + "-sandbox" }
func agentProcess(cluster string) string   { return cluster + "-agent" }

// hubProgram is the hub. It listens on this machine only, and knows itself by an address that does not change with the
// network.
func (h Home) hubProgram(port int) (Program, error) {
	path, err := FindProgram("capstan-hub")
	if err != nil {
		return Program{}, err
	}
	return Program{
		Name: hubProcess, Path: path, Endpoint: localURL(port),
		Args: []string{"server", "--controlplane-config-dir", h.hubDir(), "--bind-address", "127.0.0.1"},
	}, nil
}

// writeHubConfig writes the hub's ocmconfig.yaml, once: a person may change it afterwards.
func (h Home) writeHubConfig(port int) error {
	file := filepath.Join(h.hubDir(), "ocmconfig.yaml")
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	content, err := yaml.Marshal(map[string]any{
		"dataDirectory": h.hubDataDir(),
		"apiserver":     map[string]any{"externalHostname": "127.0.0.1", "port": port},
	})
	if err != nil {
		return err
	}
	return WriteSecretFile(file, content)
}

func (h Home) sandboxProgram(cluster ClusterState) (Program, error) {
	path, err := FindProgram("capstan-sandbox")
	if err != nil {
		return Program{}, err
	}
	return Program{
		Name: sandboxProcess(cluster.Name), Path: path, Endpoint: localURL(cluster.Port),
		Args: []string{
			"run", "--name", cluster.Name,
			"--data-dir", h.sandboxDir(cluster.Name), "--port", strconv.Itoa(cluster.Port),
		},
	}, nil
}

// AgentProgram is the agent of a cluster that the kubeconfig leads to.
func (h Home) AgentProgram(cluster, kubeconfig string) (Program, error) {
	path, err := FindProgram("capstan-agent")
	if err != nil {
		return Program{}, err
	}
	return Program{
		Name: agentProcess(cluster), Path: path,
		Args: []string{
			"run", "--cluster-name", cluster,
			"--bootstrap-kubeconfig", h.bootstrapKubeconfig(cluster),
			"--spoke-kubeconfig", kubeconfig,
			"--hub-kubeconfig-dir", h.agentDir(cluster),
		},
	}, nil
}

func localURL(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// Plan is what Up would start, in a home as it is.
func (h Home) Plan(clusters int) ([]Program, error) {
	before, err := h.Load()
	if err != nil {
		return nil, err
	}
	state, err := before.plan(before.wanted(clusters))
	if err != nil {
		return nil, err
	}
	var programs []Program
	var errs []error
	add := func(program Program, err error) {
		process, readErr := h.Process(program.Name)
		errs = append(errs, err, readErr)
		if err == nil && readErr == nil && !process.Running() {
			programs = append(programs, program)
		}
	}
	add(h.hubProgram(state.Hub.Port))
	for _, cluster := range state.Clusters {
		add(h.sandboxProgram(cluster))
		add(h.AgentProgram(cluster.Name, h.sandboxKubeconfig(cluster.Name)))
	}
	for _, joined := range state.Joined {
		add(h.AgentProgram(joined.Name, joined.Kubeconfig))
	}
	return programs, errors.Join(errs...)
}
