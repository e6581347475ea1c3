package tunnel

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// CP-07: what an agent does not read any more, such as a file for a command that never ends, does not wait for ever.
func TestStreamThatIsNotRead(t *testing.T) {
	t.Parallel()
	hub, agent := net.Pipe()
	opening, err := yamux.Client(hub, hubConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer opening.Close()
	accepting, err := yamux.Server(agent, config())
	if err != nil {
		t.Fatal(err)
	}
	defer accepting.Close()
	opened, err := (&Tunnel{session: opening}).Open()
	if err != nil {
		t.Fatal(err)
	}
	unread, is := opened.(*stream)
	if !is || unread.patience != unreadTimeout {
		t.Fatalf("what is sent through %+v may wait for another time than %s", opened, unreadTimeout)
	}
	unread.patience = time.Millisecond
	if _, err := unread.Write(make([]byte, 2*Window)); err == nil || !strings.Contains(err.Error(), "the cluster has not read") {
		t.Errorf("twice of what the agent holds is written, and it reads nothing: %v", err)
	}
	if _, err := unread.Write([]byte{0}); err == nil {
		t.Error("the stream goes on")
	}
}
