package tunnel

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/yamux"
)

// CP-10: the tunnel of an agent that accepts no streams ends, and with it whatever waits for one.
func TestAgentThatAcceptsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub, agent := net.Pipe()
		opening, err := yamux.Client(hub, hubConfig())
		if err != nil {
			t.Fatal(err)
		}
		accepting, err := yamux.Server(agent, config())
		if err != nil {
			t.Fatal(err)
		}
		defer accepting.Close()
		began, tunnel := time.Now(), &Tunnel{session: opening}
		for err == nil { // until one has to wait
			_, err = tunnel.Open()
		}
		<-tunnel.Done()
		if took := time.Since(began); took != acceptTimeout {
			t.Errorf("the tunnel has ended after %s", took)
		}
	})
}
