// Package playground runs a hub and its clusters as background processes of one machine, and records them in one
// folder, the home: that is "capstan up", "down" and "status", and agents that "capstan join --local --detach" starts.
package playground

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/atomicfile"
)

// EnvHome names the environment variable that says where the home is.
const EnvHome = "CAPSTAN_HOME"

// Home is the folder that everything of a playground is in: what it records, and all that its processes keep. Only its owner can read it.
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

func (h Home) stateFile() string { return filepath.Join(h.Dir, "playground.yaml") }
func (h Home) lockFile() string  { return filepath.Join(h.Dir, "lock") }

// ClusterDir is where what belongs to a cluster and its agent is kept.
func (h Home) ClusterDir(cluster string) string { return filepath.Join(h.clustersDir(), cluster) }

func (h Home) clustersDir() string { return filepath.Join(h.Dir, "clusters") }

// Processes are those that run in the background.
func (h Home) Processes() Processes { return Processes{h.Dir} }

// Agent is that of a cluster.
func (h Home) Agent(cluster Member) Agent { return Agent{h, cluster} }

func (h Home) hub() hubServer { return hubServer{filepath.Join(h.Dir, "hub")} }

func (h Home) sandbox(cluster ClusterState) sandbox {
	return sandbox{cluster, filepath.Join(h.ClusterDir(cluster.Name), "sandbox")}
}

// State is what a playground is made of, whether it runs or not.
type State struct {
	// Hub is nil until the first "up": a home may have nothing but agents that joined elsewhere.
	Hub *HubState `json:"hub,omitempty"`
	// Clusters are those that "up" made.
	Clusters []ClusterState `json:"clusters,omitempty"`
	// Joined are the clusters that "join" was for.
	Joined []Member `json:"joined,omitempty"`
}

// HubState is what is recorded of the hub.
type HubState struct {
	// Port is chosen once: agents know the hub by its URL.
	Port int `json:"port"`
}

// ClusterState is what is recorded of a sandbox cluster.
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

// without are the joined clusters but for the one of a name.
func (s State) without(name string) []Member {
	return slices.DeleteFunc(slices.Clone(s.Joined), func(m Member) bool { return m.Name == name })
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

// HasPlayground reports whether "up" has made a playground in the home. Where there are only agents that joined other hubs, it would make
// one besides starting them.
func (h Home) HasPlayground() bool {
	state, err := h.Load()
	return err == nil && state.Hub != nil
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

// Lock makes sure that only one command changes the home at a time. The lock goes with the process at the latest. A folder that is no home
// becomes one, unless it has what may be somebody else's.
func (h Home) Lock() (unlock func(), err error) {
	if err := h.CheckOwner(); err != nil {
		return nil, err
	}
	for _, dir := range []string{h.Dir, h.Processes().runDir(), h.Processes().logDir()} {
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
	unlock = func() {
		// Closing alone would leave the lock to a process that is just being started, until that is another program.
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
		file.Close()
	}
	if err := h.claim(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// WriteSecretFile writes a file that only its owner can read. Its readers see the old content or the new one, never
// a part. Missing folders are created.
func WriteSecretFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(file, content, 0o600)
}
