// Package tunnel carries connections from a hub to an agent over the one connection that the agent has made to the hub.
//
// The agent sends an HTTP request that upgrades its connection to Protocol, with the credential that it uses for everything else on the
// hub. From then on the connection carries streams (yamux), which the hub opens and the agent accepts. A stream is an ordinary
// connection with a window of its own: what is not read on one side is not sent by the other, and no stream waits for another. Streams that
// the agent opens are refused.
package tunnel

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// Protocol is what the connection of the agent is upgraded to.
const Protocol = "capstan-tunnel-1"

// Window is how many bytes of a stream the reading side holds at most. A stream over a connection with a round trip of 50 ms then
// carries 10 MiB/s, and a thousand streams that nobody reads take half a GiB.
const Window = 512 << 10

const (
	// keepAlive is after how long without anything sent a side sends a ping, and maxSilence how long nothing may come from the other one,
	// which does the same. Then the connection has died without a word, and the tunnel ends.
	keepAlive  = 10 * time.Second
	maxSilence = 20 * time.Second
	// writeTimeout is how long what a stream sends may wait for what was sent before it, which takes long on a slow line. Then the stream
	// fails, and the tunnel if that is a ping.
	writeTimeout = time.Minute
	// backlog is how many streams may wait for the agent to accept them, and acceptTimeout how long one may: that the agent has accepted it
	// also waits for what was sent before. Then the tunnel ends, with all who wait for a stream of it, and the agent makes another.
	backlog       = 1024
	acceptTimeout = writeTimeout
	// closeTimeout is how long the agent may go on with a stream that the hub has closed.
	closeTimeout = 10 * time.Second
	// unreadTimeout is how long what the hub sends may wait until the cluster reads on. Then the stream ends: its user may have left, which
	// nobody notices who waits to send. A cluster may be busy for long before it reads on, and kubelets, too, keep streams for four hours on
	// which nothing happens.
	unreadTimeout = 4 * time.Hour
)

// ErrRetired says that the agent takes no more streams in a tunnel, as it has made another one.
var ErrRetired = yamux.ErrRemoteGoAway

// Tunnel is a connection between a hub and an agent. Both sides may close it, which closes its streams.
type Tunnel struct{ session *yamux.Session }

// Open opens a stream to the agent. It fails with ErrRetired once the hub has read that the agent has retired the tunnel.
func (t *Tunnel) Open() (net.Conn, error) {
	opened, err := t.session.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("open a stream in the tunnel: %w", err)
	}
	return &stream{Stream: opened, patience: unreadTimeout}, nil
}

// stream is one that the hub has opened.
type stream struct {
	*yamux.Stream
	// patience is how long what is written may wait.
	patience time.Duration
	closed   sync.Once
}

// Write closes the stream if what is written waits for too long. It sets no deadline: those are the caller's.
func (s *stream) Write(b []byte) (n int, err error) {
	unread := time.AfterFunc(s.patience, func() { _ = s.Close() })
	n, err = s.Stream.Write(b)
	if !unread.Stop() && err != nil {
		err = fmt.Errorf("the cluster has not read what was sent to it for %s: %w", s.patience, err)
	}
	return n, err
}

// Close ends both directions. What the agent still sends is not kept: it would hold its room until closeTimeout, and the agent, who waits
// for that room, would not notice before that nobody reads.
func (s *stream) Close() (err error) {
	s.closed.Do(func() { // a second time, yamux forgets the stream and leaves the agent waiting
		err = s.Stream.Close()
		go func() { _, _ = io.Copy(io.Discard, s.Stream) }()
	})
	return err
}

// Streams is how many are open.
func (t *Tunnel) Streams() int { return t.session.NumStreams() }

// Listener accepts the streams that the hub opens. Its end is that of the tunnel.
func (t *Tunnel) Listener() net.Listener { return t.session }

// Retire has the agent take no more streams, and tells the hub. What is open goes on.
func (t *Tunnel) Retire() { _ = t.session.GoAway() } // it fails if the tunnel has ended

// Done is closed when the tunnel has ended.
func (t *Tunnel) Done() <-chan struct{} { return t.session.CloseChan() }

// Close ends the tunnel and all its streams.
func (t *Tunnel) Close() { _ = t.session.Close() }

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = backlog
	c.EnableKeepAlive = false // it ends a tunnel on which an answer waits for what was sent before: see line
	c.ConnectionWriteTimeout = writeTimeout
	c.MaxStreamWindowSize = Window
	c.LogOutput = io.Discard // what ends a tunnel is an error of its streams
	return c
}

// hubConfig is that of the side that opens streams.
func hubConfig() *yamux.Config {
	c := config()
	c.StreamOpenTimeout, c.StreamCloseTimeout = acceptTimeout, closeTimeout
	return c
}

// Dial makes a tunnel to the hub with a client that speaks HTTP/1.1. A refusal of the hub is the error that a client of the API gets.
func Dial(ctx context.Context, client *http.Client, url string) (*Tunnel, error) {
	conn, err := Upgrade(ctx, client, url, Protocol)
	if err != nil {
		return nil, err
	}
	l := newLine(conn)
	session, err := yamux.Server(&wholeFrames{Conn: l}, config())
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return keptAlive(session, l), nil
}

// Accept makes a tunnel of the request of an agent. If it fails, the caller has still to answer the request.
func Accept(w http.ResponseWriter, r *http.Request) (*Tunnel, error) {
	conn, err := TakeOver(w, r, Protocol)
	if err != nil {
		return nil, err
	}
	l := newLine(conn)
	session, err := yamux.Client(&wholeFrames{Conn: withFewPings(l)}, hubConfig())
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	// Only the hub opens streams. One of an agent would be read into memory up to its window, and nobody would take it.
	if err := session.GoAway(); err != nil {
		_ = session.Close()
		return nil, fmt.Errorf("tell the agent to open no streams: %w", err)
	}
	return keptAlive(session, l), nil
}

// keptAlive is a tunnel that ends when the other side is silent.
func keptAlive(session *yamux.Session, l *line) *Tunnel {
	t := &Tunnel{session: session}
	ping := func() error {
		_, err := session.Ping()
		return err
	}
	go l.keepAlive(ping, t.Close, t.Done())
	return t
}
