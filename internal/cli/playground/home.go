// Package playground runs a hub and its clusters as background processes of one machine, and remembers them in one
// folder, the home: that is "capstan up", "down" and "status", and agents that "capstan join --local --detach" starts.
package playground

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// EnvHome names the environment variable that says where the home is.
const EnvHome = "CAPSTAN_HOME"

// Home is the folder that everything of a playground is in. Only its owner can read it.
type Home struct {
	// Dir is its absolute path.
	Dir string
}

// DefaultHome is the home of the user who runs the command: $CAPSTAN_HOME, else ~/.capstan.
func DefaultHome() (Home, error) {
	dir := os.Getenv(EnvHome)
	if dir == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return Home{}, fmt.Errorf("find the home folder: %w: set %s to a folder to keep the playground in", err, EnvHome)
		}
		dir = filepath.Join(user, ".capstan")
	}
	dir, err := filepath.Abs(dir)
	return Home{Dir: dir}, err
}

// Kubeconfig leads to the hub and all clusters of the playground.
func (h Home) Kubeconfig() string { return filepath.Join(h.Dir, "kubeconfig") }

func (h Home) stateFile() string     { return filepath.Join(h.Dir, "playground.yaml") }
func (h Home) lockFile() string      { return filepath.Join(h.Dir, "lock") }
func (h Home) runDir() string        { return filepath.Join(h.Dir, "run") }
func (h Home) logDir() string        { return filepath.Join(h.Dir, "logs") }
func (h Home) hubDir() string        { return filepath.Join(h.Dir, "hub") }
func (h Home) hubDataDir() string    { return filepath.Join(h.hubDir(), "data") }
func (h Home) hubConfigFile() string { return filepath.Join(h.hubDir(), "ocmconfig.yaml") }

// hubKubeconfig is where the hub writes the credential of its administrator.
func (h Home) hubKubeconfig() string {
	return filepath.Join(h.hubDataDir(), "cert", "kube-aggregator.kubeconfig")
}

// ClusterDir is where what belongs to a cluster and its agent is kept.
func (h Home) ClusterDir(cluster string) string { return filepath.Join(h.Dir, "clusters", cluster) }
func (h Home) sandboxDir(cluster string) string {
	return filepath.Join(h.ClusterDir(cluster), "sandbox")
}
func (h Home) sandboxKubeconfig(cluster string) string {
	return filepath.Join(h.sandboxDir(cluster), "kubeconfig")
}

// agentDir is where the agent of a cluster keeps its access to the hub.
func (h Home) agentDir(cluster string) string { return filepath.Join(h.ClusterDir(cluster), "agent") }

// hasCredential tells whether the agent of a cluster has joined a hub.
func (h Home) hasCredential(cluster string) bool {
	_, err := os.Stat(filepath.Join(h.agentDir(cluster), fleet.KeyKubeconfig))
	return err == nil
}

// forgetCredential removes the access of an agent to the hub, but not its name, by which it recognizes what it has applied.
func (h Home) forgetCredential(cluster string) error {
	for _, key := range []string{fleet.KeyKubeconfig, fleet.KeyTLSCert, fleet.KeyTLSKey} {
		if err := os.Remove(filepath.Join(h.agentDir(cluster), key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the certificate of cluster %s: %w", cluster, err)
		}
	}
	return nil
}

func (h Home) bootstrapKubeconfig(cluster string) string {
	return filepath.Join(h.ClusterDir(cluster), "bootstrap-kubeconfig")
}

// State is what a playground is made of, whether it runs or not.
type State struct {
	// Hub is nil until the first "up": a home may hold nothing but agents that joined elsewhere.
	Hub *HubState `json:"hub,omitempty"`
	// Clusters are those that "up" made.
	Clusters []ClusterState `json:"clusters,omitempty"`
	// Joined are the clusters that "join" was for.
	Joined []Member `json:"joined,omitempty"`
}

// HubState is what is remembered of the hub.
type HubState struct {
	// Port is chosen once: agents know the hub by its URL.
	Port int `json:"port"`
}

// ClusterState is what is remembered of a sandbox cluster.
type ClusterState struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

// Member is a cluster that an agent of this home is for.
type Member struct {
	// Name of the cluster on the hub.
	Name string `json:"name"`
	// Kubeconfig leads to the cluster. Its absolute path.
	Kubeconfig string `json:"kubeconfig"`
	// URL of the cluster's API server for users of the hub, empty for none.
	URL string `json:"url,omitempty"`
	// Foreground says that a person runs the agent in a terminal: "up" leaves it alone.
	Foreground bool `json:"foreground,omitempty"`
}

// background are the joined clusters whose agents are not a person's to run.
func (s State) background() []Member {
	return slices.DeleteFunc(slices.Clone(s.Joined), func(m Member) bool { return m.Foreground })
}

// Load reads the state; that of a home which does not exist is empty.
func (h Home) Load() (State, error) {
	var state State
	content, err := os.ReadFile(h.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return state, fmt.Errorf("read the playground: %w: set %s to a folder of your own", err, EnvHome)
	}
	if err := yaml.UnmarshalStrict(content, &state); err != nil {
		return state, fmt.Errorf("%s is broken: %w\nRepair it, or start afresh with \"capstan down --purge\".", h.stateFile(), err)
	}
	return state, nil
}

// Save replaces the state.
func (h Home) Save(state State) error {
	content, err := yaml.Marshal(state)
	if err != nil {
		return err
	}
	return WriteSecretFile(h.stateFile(), content)
}

// Lock makes sure that only one command changes the home at a time. The lock goes with the process at the latest.
func (h Home) Lock() (unlock func(), err error) {
	for _, dir := range []string{h.Dir, h.runDir(), h.logDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create the home of the playground: %w: set %s to a folder you may write to", err, EnvHome)
		}
	}
	file, err := os.OpenFile(h.lockFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the home of the playground: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another capstan command is changing %s: wait until it has ended, or set %s to another folder", h.Dir, EnvHome)
		}
		return nil, fmt.Errorf("lock %s: %w", h.lockFile(), err)
	}
	return func() {
		// Closing alone would leave the lock to a process that is just being started, until that is another program.
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
		file.Close()
	}, nil
}

// WriteSecretFile writes a file that only its owner can read. Its readers see the old content or the new one, never
// a part. Missing folders are created.
func WriteSecretFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	if err := errors.Join(err, temporary.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(temporary.Name(), file)
}
