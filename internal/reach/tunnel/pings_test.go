package tunnel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

// CP-07: pings are counted wherever they are in what comes, and nothing else is.
func TestFewPings(t *testing.T) {
	t.Parallel()
	ping := []byte{0, typePing, 0, flagSYN, 0, 0, 0, 0, 0, 0, 0, 1}
	answer := []byte{0, typePing, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1}
	update := []byte{0, 1, 0, flagSYN, 0, 0, 0, 1, 0, 0, 1, 0}
	data := append([]byte{0, typeData, 0, 0, 0, 0, 0, 1, 0, 0, 0, headerSize}, ping...)
	for name, c := range map[string]struct {
		frames []byte
		ends   bool
	}{
		"a burst":                    {frames: bytes.Repeat(ping, pingBurst)},
		"more":                       {frames: bytes.Repeat(ping, 10*pingBurst), ends: true},
		"more among others":          {frames: bytes.Repeat(bytes.Join([][]byte{data, update, ping, answer}, nil), 10*pingBurst), ends: true},
		"answers":                    {frames: bytes.Repeat(answer, 100)},
		"windows of streams":         {frames: bytes.Repeat(update, 100)},
		"data that looks like pings": {frames: bytes.Repeat(data, 100)},
	} {
		for of, reader := range map[string]func(io.Reader) io.Reader{
			"at once":      func(r io.Reader) io.Reader { return r },
			"in bytes":     iotest.OneByteReader,
			"half by half": iotest.HalfReader,
		} {
			conn := withFewPings(readerConn{Reader: reader(bytes.NewReader(c.frames))})
			got, err := io.ReadAll(conn)
			if c.ends != errors.Is(err, errPings) || !c.ends && !bytes.Equal(got, c.frames) {
				t.Errorf("%s, %s: %d of %d bytes, %v", name, of, len(got), len(c.frames), err)
			}
		}
	}
}

// readerConn is a connection that is only read.
type readerConn struct {
	net.Conn
	io.Reader
}

func (c readerConn) Read(b []byte) (int, error) { return c.Reader.Read(b) }
