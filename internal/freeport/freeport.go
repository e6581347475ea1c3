// Package freeport finds TCP ports of 127.0.0.1 for servers that are started later, and started again.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// tries is how many ports are looked at before it is said that none is free.
const tries = 200

// Range hands out ports, each once. It is to lie below the ports that the operating system gives to outgoing connections and
// to those who ask for any (32768 and up on Linux), or one may be taken while its server is not running.
type Range struct {
	lowest, highest int

	mu    sync.Mutex
	taken map[int]bool
}

// Between returns the range from the lowest to the highest port.
func Between(lowest, highest int) *Range {
	return &Range{lowest: lowest, highest: highest, taken: map[int]bool{}}
}

// Take keeps a port from being handed out.
func (r *Range) Take(port int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken[port] = true
}

// Next hands out a port that nobody listens on.
func (r *Range) Next() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range tries {
		port := r.lowest + rand.IntN(r.highest-r.lowest+1)
		if !r.taken[port] && Check(port) == nil {
			r.taken[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d", r.lowest, r.highest)
}

// Check fails if a port of 127.0.0.1 is in use.
func Check(port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return listener.Close()
}
