package tunnel

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/hashicorp/yamux"
)

// CP-07: a frame with little data is one write, one with much data is two, and what is read is what was sent.
func TestWholeFrames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ data, writes int }{{1, 1}, {headerSize, 1}, {maxWhole, 1}, {maxWhole + 1, 2}, {10 * maxWhole, 2}} {
		a, b := net.Pipe()
		recorded := &writes{Conn: a}
		hub, err := yamux.Client(&wholeFrames{Conn: recorded}, hubConfig())
		if err != nil {
			t.Fatal(err)
		}
		agent, err := yamux.Server(b, config())
		if err != nil {
			t.Fatal(err)
		}
		sent := bytes.Repeat([]byte{typeData, 1, 2}, c.data)[:c.data]
		if got := through(t, hub, agent, sent); !bytes.Equal(got, sent) {
			t.Errorf("%d bytes are sent, and %d other ones come", len(sent), len(got))
		}
		_, _ = hub.Close(), agent.Close()
		if got := len(recorded.sizes); got != c.writes {
			t.Errorf("%d bytes take %d writes, want %d: %d", c.data, got, c.writes, recorded.sizes)
		}
	}
}

// through sends something in a stream, and returns what comes.
func through(t *testing.T, hub, agent *yamux.Session, sent []byte) []byte {
	t.Helper()
	from, err := hub.Open()
	if err != nil {
		t.Fatal(err)
	}
	to, err := agent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = from.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(to, got); err != nil {
		t.Fatal(err)
	}
	return got
}

// writes is a connection that remembers what is written of frames with data.
type writes struct {
	net.Conn
	sizes []int
	// open is how much of the last frame with data is to come.
	open int
}

func (w *writes) Write(b []byte) (int, error) {
	switch {
	case w.open > 0:
		w.sizes = append(w.sizes, len(b))
		w.open -= len(b)
	case b[typeAt] == typeData && binary.BigEndian.Uint32(b[lengthAt:]) > 0:
		w.sizes = append(w.sizes, len(b))
		w.open = int(binary.BigEndian.Uint32(b[lengthAt:])) + headerSize - len(b)
	}
	return w.Conn.Write(b)
}
