// Package freeport finds TCP ports of 127.0.0.1 for servers that are started later, and started again. On Linux, several processes may look
// for ports in the same range at the same time: what one has found, the kernel reserves for it until it ends.
package freeport

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// tries is how many ports are looked at before it is said that none is free.
const tries = 200

// Range hands out ports, each once. It must lie below the ports that the operating system gives to outgoing connections and
// to those who ask for any (32768 and up on Linux), or one may be taken while its server is not running.
type Range struct {
	lowest, highest int

	mu sync.Mutex
	// taken are the ports that are not handed out any more, with what reserves them.
	taken map[int]io.Closer
}

// Between returns the range from the lowest to the highest port.
func Between(lowest, highest int) *Range {
	return &Range{lowest: lowest, highest: highest, taken: map[int]io.Closer{}}
}

// Take keeps a port from being handed out.
func (r *Range) Take(port int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken[port] = nil
}

// Next hands out a port that no process listens on, and that no other process was given that still runs.
func (r *Range) Next() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range tries {
		port := r.lowest + rand.IntN(r.highest-r.lowest+1) //nolint:gosec // a port is no secret
		if _, taken := r.taken[port]; taken {
			continue
		}
		reservation, err := reserve(port)
		if err != nil {
			continue
		}
		r.taken[port] = reservation
		if Check(port) == nil {
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
