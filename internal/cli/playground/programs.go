package playground

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// Program is a background process to be.
type Program struct {
	// Name is unique in the home, such as cluster1-agent.
	Name string
	// Path is the executable, Args are its arguments. They contain no secrets: everybody on the machine can see them.
	Path string
	Args []string
	// Endpoint is the URL it serves, empty if none.
	Endpoint string
}

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

// FindProgram returns the path of one of our programs: next to this one, else in PATH.
func FindProgram(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	sibling := filepath.Join(filepath.Dir(self), name)
	if info, err := os.Stat(sibling); err == nil && info.Mode().IsRegular() {
		return sibling, nil
	}
	if found, err := exec.LookPath(name); err == nil {
		return filepath.Abs(found)
	}
	return "", fmt.Errorf("%s is neither in %s nor in PATH: install it there; \"make build\" makes all programs of Capstan", name,
		filepath.Dir(self))
}

func localURL(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// hubServer is the hub of a playground: its folder, its configuration and its program.
type hubServer struct{ dir string }

// hubProcess is the name of its process.
const hubProcess = "hub"

func (s hubServer) dataDir() string    { return filepath.Join(s.dir, "data") }
func (s hubServer) configFile() string { return filepath.Join(s.dir, "ocmconfig.yaml") }

// kubeconfig is where the hub writes the credential of its administrator.
func (s hubServer) kubeconfig() string {
	return filepath.Join(s.dataDir(), "cert", "kube-aggregator.kubeconfig")
}

// program runs the hub. It listens on this machine only, and knows itself by an address that does not change with the
// network.
func (s hubServer) program(port int) (Program, error) {
	path, err := FindProgram(hubBinary)
	if err != nil {
		return Program{}, err
	}
	return Program{
		Name: hubProcess, Path: path, Endpoint: localURL(port),
		Args: []string{"server", "--controlplane-config-dir", s.dir, "--bind-address", "127.0.0.1"},
	}, nil
}

// writeConfig writes the hub's ocmconfig.yaml, once: a person may change it afterwards, but for where the data is.
func (s hubServer) writeConfig(port int) error {
	if _, err := os.Stat(s.configFile()); err == nil {
		return nil
	}
	content, err := yaml.Marshal(map[string]any{
		"dataDirectory": s.dataDir(),
		"apiserver":     map[string]any{"externalHostname": "127.0.0.1", "port": port},
	})
	if err != nil {
		return err
	}
	return WriteSecretFile(s.configFile(), content)
}

// hubConfig is what matters to the playground in the hub's ocmconfig.yaml.
type hubConfig struct {
	DataDirectory string `json:"dataDirectory"`
	APIServer     struct {
		Port int `json:"port"`
	} `json:"apiserver"`
}

// config reads the hub's ocmconfig.yaml. What is wrong with the file is for the hub to say.
func (s hubServer) config() (config hubConfig, ok bool) {
	content, err := os.ReadFile(s.configFile())
	if err != nil {
		return config, false
	}
	err = yaml.Unmarshal(content, &config)
	return config, err == nil
}

// checkDataDir fails if the hub would not have its data in this home: one that was moved or copied names the home of before.
func (s hubServer) checkDataDir() error {
	config, ok := s.config()
	if !ok {
		return nil
	}
	dir := config.DataDirectory
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(s.dir), dir) // the hub runs in the home
	}
	if hubapi.SameFile(dir, s.dataDir()) || filepath.Base(dir) == filepath.Base(s.dataDir()) && hubapi.SameFile(filepath.Dir(dir), s.dir) {
		return nil
	}
	return fmt.Errorf("%s: dataDirectory: %q is not in %s %s: change it to %s, which is where the data is if the home was moved or copied",
		s.configFile(), config.DataDirectory, EnvHome, filepath.Dir(s.dir), s.dataDir())
}

// port is the port in the hub's ocmconfig.yaml, or else the given one.
func (s hubServer) port(otherwise int) int {
	config, ok := s.config()
	if !ok {
		return otherwise
	}
	return cmp.Or(config.APIServer.Port, otherwise)
}

// sandbox is a cluster that "up" made: its folder and its program.
type sandbox struct {
	ClusterState
	dir string
}

func sandboxProcess(cluster string) string { return cluster + "-sandbox" }

func (s sandbox) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

func (s sandbox) program() (Program, error) {
	path, err := FindProgram(sandboxBinary)
	if err != nil {
		return Program{}, err
	}
	return Program{
		Name: sandboxProcess(s.Name), Path: path, Endpoint: localURL(s.Port),
		Args: []string{
			"run", "--name", s.Name,
			"--data-dir", s.dir, "--port", strconv.Itoa(s.Port),
		},
	}, nil
}

// member is the cluster of the playground as its agent sees it.
func (s sandbox) member() Member {
	return Member{Name: s.Name, Kubeconfig: s.kubeconfig(), URL: localURL(s.Port)}
}
