package playground

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/capstan-io/capstan/internal/freeport"
)

// Ports of playgrounds are recorded, and must be free after a reboot, too.
const (
	lowestPort  = 20000
	highestPort = 29999
)

// desiredClusters is how many clusters there are to be, with the value of --clusters, or 0 without one.
func (s State) desiredClusters(clusters int) int {
	switch {
	case clusters > 0:
		return clusters
	case s.Hub == nil:
		return DefaultClusters
	default:
		return len(s.Clusters)
	}
}

// plan gives the hub and each of the clusters what it keeps for good, and makes sure that nothing is taken away from a
// playground that has more.
func (s State) plan(clusters int) (State, error) {
	if clusters < len(s.Clusters) {
		return s, fmt.Errorf("--clusters: %d: this playground has %d already, and \"up\" takes none away: "+
			"leave the flag out, or start afresh with \"capstan down --purge\"", clusters, len(s.Clusters))
	}
	ports := freeport.Between(lowestPort, highestPort)
	if s.Hub != nil {
		ports.Take(s.Hub.Port)
	}
	for _, cluster := range s.Clusters {
		ports.Take(cluster.Port)
	}
	var errs []error
	next := func() int {
		port, err := ports.Next()
		errs = append(errs, err)
		return port
	}
	if s.Hub == nil {
		s.Hub = &HubState{Port: next()}
	}
	for i := len(s.Clusters) + 1; i <= clusters; i++ {
		name := "cluster" + strconv.Itoa(i)
		if s.joined(name) {
			return s, fmt.Errorf("cluster %s: an agent of this name was started by \"capstan join --local\" in the same home: "+
				"\"capstan unjoin --local --cluster-name %s\" removes it, or set %s to another folder for the playground", name, name, EnvHome)
		}
		s.Clusters = append(s.Clusters, ClusterState{Name: name, Port: next()})
	}
	return s, errors.Join(errs...)
}

func (s State) joined(name string) bool {
	for _, joined := range s.Joined {
		if joined.Name == name {
			return true
		}
	}
	return false
}
