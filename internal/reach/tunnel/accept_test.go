package tunnel

import (
	"net"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// CP-10: the tunnel of an agent that accepts no streams ends, and with it whatever waits for one.
func TestAgentThatAcceptsNothing(t *testing.T) {
	t.Parallel()
	hub, agent := net.Pipe()
	c := hubConfig()
	if c.StreamOpenTimeout != acceptTimeout {
		t.Errorf("an agent has %s to accept a stream", c.StreamOpenTimeout)
	}
	c.StreamOpenTimeout = time.Millisecond
	opening, err := yamux.Client(hub, c)
	if err != nil {
		t.Fatal(err)
	}
	accepting, err := yamux.Server(agent, config())
	if err != nil {
		t.Fatal(err)
	}
	defer accepting.Close()
	tunnel := &Tunnel{session: opening}
	for err == nil { // until the tunnel has ended, or one has to wait for that
		_, err = tunnel.Open()
	}
	<-tunnel.Done()
}
