package tunnel

import (
	"encoding/binary"
	"errors"
	"net"
	"time"

	"golang.org/x/time/rate"
)

// An agent sends a ping every keepAlive at most. Each takes a goroutine of the hub until it is answered, or if the agent does not read, for
// writeTimeout.
const (
	pingBurst    = 10
	pingInterval = time.Second
)

var errPings = errors.New("the agent sends more pings than one a second")

// The header of a yamux frame: version, type, flags, stream and length. Only data is followed by as many bytes as its length says.
// See https://github.com/hashicorp/yamux/blob/master/spec.md.
const (
	headerSize = 12
	typeAt     = 1
	flagsAt    = 2
	lengthAt   = 8

	typeData = 0
	typePing = 2
	flagSYN  = 1
)

// fewPings is a connection to an agent that ends when the agent sends too many pings.
type fewPings struct {
	net.Conn
	allowed *rate.Limiter
	// header is what has come of the one that is next, and data how many bytes come before it.
	header []byte
	data   int
}

func withFewPings(conn net.Conn) *fewPings {
	return &fewPings{Conn: conn, allowed: rate.NewLimiter(rate.Every(pingInterval), pingBurst), header: make([]byte, 0, headerSize)}
}

// Read implements net.Conn. One goroutine reads at a time.
func (c *fewPings) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.follow(b[:n]) {
		return 0, errPings
	}
	return n, err
}

// follow goes on through the frames, and says whether there are few enough pings.
func (c *fewPings) follow(b []byte) bool {
	for len(b) > 0 {
		if c.data > 0 {
			skipped := min(c.data, len(b))
			c.data -= skipped
			b = b[skipped:]
			continue
		}
		part := min(headerSize-len(c.header), len(b))
		c.header = append(c.header, b[:part]...)
		b = b[part:]
		if len(c.header) < headerSize {
			return true
		}
		if isPing(c.header) && !c.allowed.Allow() {
			return false
		}
		if c.header[typeAt] == typeData {
			c.data = int(binary.BigEndian.Uint32(c.header[lengthAt:]))
		}
		c.header = c.header[:0]
	}
	return true
}

// isPing distinguishes pings from the answers to those of the hub.
func isPing(header []byte) bool {
	return header[typeAt] == typePing && binary.BigEndian.Uint16(header[flagsAt:])&flagSYN != 0
}
