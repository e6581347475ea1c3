// Package identity decides under which names an agent appears on the hub.
package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Identity is a cluster's name on the hub and the name of one of its agents.
type Identity struct {
	Cluster string
	Agent   string
}

// User is the user name that the agent's client certificate carries.
func (i Identity) User() string { return fleet.ClusterUser(i.Cluster, i.Agent) }

// agentNameLength is the length of a random agent name.
const agentNameLength = 5

// Resolve returns the names of the cluster and the agent: the requested ones take precedence over those that dir holds from an earlier
// run, and these over random ones. The result is stored in dir, so that a restart before registration is complete keeps it.
func Resolve(cluster, agent, dir string) (Identity, error) {
	if err := validate(cluster); cluster != "" && err != nil {
		return Identity{}, err
	}
	if err := validateAgent(agent); err != nil {
		return Identity{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Identity{}, fmt.Errorf("create the hub kubeconfig folder: %w", err)
	}
	id := Identity{}
	var err error
	if id.Cluster, err = choose(cluster, filepath.Join(dir, fleet.KeyClusterName),
		func() string { return string(uuid.NewUUID()) }); err != nil {
		return Identity{}, err
	}
	if id.Agent, err = choose(agent, filepath.Join(dir, fleet.KeyAgentName),
		func() string { return rand.String(agentNameLength) }); err != nil {
		return Identity{}, err
	}
	return id, validate(id.Cluster)
}

func validate(cluster string) error {
	if problems := validation.IsDNS1123Label(cluster); len(problems) > 0 {
		return fmt.Errorf("cluster name %q cannot name the cluster's namespace on the hub: %s", cluster, strings.Join(problems, "; "))
	}
	if fleet.ReservedClusterName(cluster) {
		return fmt.Errorf("cluster name %q is reserved: something else is called so on the hub; choose another name", cluster)
	}
	return nil
}

// validateAgent refuses what would make another user of the agent: a user name is taken apart at its colons.
func validateAgent(agent string) error {
	if strings.Contains(agent, ":") || strings.TrimSpace(agent) != agent {
		return fmt.Errorf("--agent-id %q must hold no colon and no space at its ends; a Klusterlet's UID is a good one", agent)
	}
	return nil
}

func choose(flag, file string, random func() string) (string, error) {
	remembered, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read a remembered name: %w", err)
	}
	name := strings.TrimSpace(string(remembered))
	switch {
	case flag != "" && flag == name:
		return name, nil
	case flag != "":
		name = flag
	case name != "":
		return name, nil
	default:
		name = random()
	}
	if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
		return "", fmt.Errorf("remember a name: %w", err)
	}
	return name, nil
}
