package playground

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are chosen below the ranges that operating systems take local ports of outgoing connections from (32768 and up on
// Linux): a remembered port must be free after a reboot, too.
const (
	lowestPort  = 20000
	highestPort = 29999
	portTries   = 200
)

// freePort finds a port of 127.0.0.1 that nobody uses, other than those taken.
func freePort(taken map[int]bool) (int, error) {
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if !taken[port] && portFree(port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d", lowestPort, highestPort)
}

// portFree fails if a port of 127.0.0.1 is in use.
func portFree(port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return listener.Close()
}

// wanted is how many clusters there are to be when a person asks for some, or with 0 for none in particular.
func (s State) wanted(clusters int) int {
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
	taken := map[int]bool{}
	if s.Hub != nil {
		taken[s.Hub.Port] = true
	}
	for _, cluster := range s.Clusters {
		taken[cluster.Port] = true
	}
	var errs []error
	next := func() int {
		port, err := freePort(taken)
		errs = append(errs, err)
		taken[port] = true
		return port
	}
	if s.Hub == nil {
		s.Hub = &HubState{Port: next()}
	}
	for i := len(s.Clusters) + 1; i <= clusters; i++ {
		name := "cluster" + strconv.Itoa(i)
		if s.joined(name) {
			return s, fmt.Errorf("cluster %s: an agent of this name was started by \"capstan join\" in the same home: \"capstan unjoin\" removes it, or "+
				"set %s to another folder for the playground", name, EnvHome)
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
