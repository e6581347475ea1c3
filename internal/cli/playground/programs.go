package playground

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"

	"sigs.k8s.io/yaml"
)

// Names of our processes in a home.
const hubProcess = "hub"

func sandboxProcess(cluster string) string { return cluster + "-sandbox" }
func agentProcess(cluster string) string   { return cluster + "-agent" }

// The programs that run in the background.
const (
	hubBinary     = "capstan-hub"
	sandboxBinary = "capstan-sandbox"
	agentBinary   = "capstan-agent"
)

// findPrograms fails if one of the programs is missing.
func findPrograms() error {
	var errs []error
	for _, name := range []string{hubBinary, sandboxBinary, agentBinary} {
		_, err := FindProgram(name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hubProgram is the hub. It listens on this machine only, and knows itself by an address that does not change with the
// network.
func (h Home) hubProgram(port int) (Program, error) {
	path, err := FindProgram(hubBinary)
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
	if _, err := os.Stat(h.hubConfigFile()); err == nil {
		return nil
	}
	content, err := yaml.Marshal(map[string]any{
		"dataDirectory": h.hubDataDir(),
		"apiserver":     map[string]any{"externalHostname": "127.0.0.1", "port": port},
	})
	if err != nil {
		return err
	}
	return WriteSecretFile(h.hubConfigFile(), content)
}

// hubPort is the port in the hub's ocmconfig.yaml, or else the given one. What is wrong with the file is for the hub to say.
func (h Home) hubPort(otherwise int) int {
	var config struct {
		APIServer struct {
			Port int `json:"port"`
		} `json:"apiserver"`
	}
	content, err := os.ReadFile(h.hubConfigFile())
	if err != nil || yaml.Unmarshal(content, &config) != nil {
		return otherwise
	}
	return cmp.Or(config.APIServer.Port, otherwise)
}

func (h Home) sandboxProgram(cluster ClusterState) (Program, error) {
	path, err := FindProgram(sandboxBinary)
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

// sandboxMember is a cluster of the playground as its agent sees it.
func (h Home) sandboxMember(cluster ClusterState) Member {
	return Member{Name: cluster.Name, Kubeconfig: h.sandboxKubeconfig(cluster.Name), URL: localURL(cluster.Port)}
}

// AgentProgram is the agent of a cluster.
func (h Home) AgentProgram(member Member) (Program, error) {
	path, err := FindProgram(agentBinary)
	if err != nil {
		return Program{}, err
	}
	args := []string{
		"run", "--cluster-name", member.Name,
		"--bootstrap-kubeconfig", h.bootstrapKubeconfig(member.Name),
		"--spoke-kubeconfig", member.Kubeconfig,
		"--hub-kubeconfig-dir", h.agentDir(member.Name),
	}
	if member.URL != "" {
		args = append(args, "--spoke-external-server-urls", member.URL)
	}
	return Program{Name: agentProcess(member.Name), Path: path, Args: args}, nil
}

func localURL(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// Plan is what Up would start, in a home as it is.
func (h Home) Plan(clusters int) ([]Program, error) {
	before, err := h.Load()
	if err != nil {
		return nil, err
	}
	state, err := before.plan(before.desiredClusters(clusters))
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
		add(h.AgentProgram(h.sandboxMember(cluster)))
	}
	for _, joined := range state.background() {
		add(h.AgentProgram(joined))
	}
	return programs, errors.Join(errs...)
}
