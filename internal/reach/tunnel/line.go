package tunnel

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// line is a connection that knows when something last came and was last sent. Each side sends something at least every keepAlive, and goes
// by what comes, whatever it is: the answer to a ping may wait for minutes behind what the other side sends on a slow line.
type line struct {
	net.Conn
	began         time.Time
	heard, spoken atomic.Int64 // time.Durations since it began
}

func newLine(conn net.Conn) *line { return &line{Conn: conn, began: time.Now()} }

// Read implements net.Conn.
func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.heard.Store(int64(time.Since(l.began)))
	}
	return n, err
}

// Write implements net.Conn.
func (l *line) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if n > 0 {
		l.spoken.Store(int64(time.Since(l.began)))
	}
	return n, err
}

// keepAlive calls ping when nothing was sent for keepAlive, unless that still waits since the last one, and end when nothing has come for
// maxSilence. It returns then, and when done is closed. A ping that waits for its turn until it fails ends the line, too.
func (l *line) keepAlive(ping func() error, end func(), done <-chan struct{}) {
	pingOrEnd := func() {
		if errors.Is(ping(), yamux.ErrConnectionWriteTimeout) {
			end()
		}
	}
	timer := time.NewTimer(keepAlive)
	defer timer.Stop()
	var pinged time.Duration
	for {
		select {
		case <-done:
			return
		case <-timer.C:
		}
		now := time.Since(l.began)
		heard, spoken := time.Duration(l.heard.Load()), time.Duration(l.spoken.Load())
		silent, idle := now-heard, now-max(pinged, spoken)
		if silent >= maxSilence {
			end()
			return
		}
		if idle >= keepAlive && spoken >= pinged {
			go pingOrEnd() // which may wait for its turn
			pinged = now
		}
		if idle >= keepAlive {
			idle = 0
		}
		timer.Reset(min(maxSilence-silent, keepAlive-idle))
	}
}
