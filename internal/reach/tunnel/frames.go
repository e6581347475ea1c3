package tunnel

import (
	"encoding/binary"
	"net"
)

// maxWhole is up to how many bytes of data a frame is sent at once. Copying more costs more than it saves.
const maxWhole = 4 << 10

// wholeFrames is a connection that sends the header of a frame together with its data. yamux writes the two apart, which over TLS are two
// records, and wake the other side twice.
type wholeFrames struct {
	net.Conn
	// header is one whose data is to be written next, together with it. One goroutine writes at a time.
	header []byte
}

// Write implements net.Conn.
func (c *wholeFrames) Write(b []byte) (int, error) {
	switch {
	case len(c.header) > 0:
		c.header = append(c.header, b...)
		n, err := c.Conn.Write(c.header)
		c.header = c.header[:0]
		return max(0, n-headerSize), err
	case isShortData(b):
		c.header = append(c.header, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// isShortData reports whether b is the header of a frame with data that is sent at once.
func isShortData(b []byte) bool {
	if len(b) != headerSize || b[typeAt] != typeData {
		return false
	}
	length := binary.BigEndian.Uint32(b[lengthAt:])
	return 0 < length && length <= maxWhole
}
