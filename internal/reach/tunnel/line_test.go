package tunnel

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/yamux"
)

// peer is the other side of a line. It returns when the line ends, or over is closed.
type peer func(line net.Conn, over <-chan struct{})

// sends has a peer that reads nothing, and so answers nothing, send something a few times.
func sends(interval time.Duration, times int) peer {
	return func(line net.Conn, over <-chan struct{}) {
		for range times {
			select {
			case <-over:
				return
			case <-time.After(interval):
				_, _ = line.Write([]byte{0})
			}
		}
	}
}

// reads has a peer read everything besides.
func reads(p peer) peer {
	return func(line net.Conn, over <-chan struct{}) {
		go func() { _, _ = io.Copy(io.Discard, line) }()
		p(line, over)
	}
}

// answers has a peer answer what comes, and send nothing else.
func answers(after time.Duration) peer {
	return func(line net.Conn, over <-chan struct{}) {
		for {
			if _, err := line.Read(make([]byte, 1)); err != nil {
				return
			}
			select {
			case <-over:
				return
			case <-time.After(after):
				_, _ = line.Write([]byte{0})
			}
		}
	}
}

// CP-10: a tunnel ends when nothing at all comes, and not when the answer to a ping takes its time, as on a slow line that is busy.
func TestSilence(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	const one, all = 1, int(hour / keepAlive) // one waits to be sent; the last of all may come with the end
	for name, test := range map[string]struct {
		peer  peer
		ends  time.Duration
		pings int
	}{
		"silent from the beginning": {sends(0, 0), maxSilence, one},
		"silent after a while":      {sends(time.Second, 65), 65*time.Second + maxSilence, one},
		"sends slowly":              {sends(15*time.Second, 1000), hour, one},
		"sends too slowly":          {sends(21*time.Second, 1000), maxSilence, one},
		"sends much":                {sends(time.Second, 10_000), hour, one},
		"sends slowly, but reads":   {reads(sends(15*time.Second, 1000)), hour, all},
		"answers at once":           {answers(0), hour, all},
		"answers late":              {answers(9 * time.Second), hour, all},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended, pings := endOf(test.peer, hour)
				if ended != test.ends {
					t.Errorf("it ends after %s, want %s", ended, test.ends)
				}
				if pings < max(one, test.pings-1) || pings > test.pings {
					t.Errorf("in %s, there are %d pings, want %d", ended, pings, test.pings)
				}
			})
		})
	}
}

// endOf says when a line to a peer ends, after most at the latest, and how many pings were for it.
func endOf(p peer, most time.Duration) (after time.Duration, pings int) {
	near, far := net.Pipe()
	l, began := newLine(near), time.Now()
	over, done := make(chan struct{}), make(chan struct{})
	defer time.AfterFunc(most, func() { close(done) }).Stop()
	go p(far, over)
	go func() { _, _ = io.Copy(io.Discard, l) }()
	queue := make(chan struct{}, 1)
	var all atomic.Int32
	go func() {
		for range queue { // one after the other, as a session does
			_, _ = l.Write([]byte{0})
		}
	}()
	l.keepAlive(func() error {
		all.Add(1)
		select {
		case queue <- struct{}{}:
		case <-over:
		}
		return nil
	}, func() {}, done)
	after = time.Since(began)
	close(over)
	_, _ = near.Close(), far.Close()
	synctest.Wait() // for pings that are being sent
	close(queue)
	return after, int(all.Load())
}

// CP-10: a line that is spoken on needs no pings.
func TestPingsAreForIdleLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		l, done := newLine(near), make(chan struct{})
		go func() { _, _ = io.Copy(far, far) }() // sends back what comes
		go func() { _, _ = io.Copy(io.Discard, l) }()
		talk := time.NewTicker(keepAlive / 2)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			ping := func() error {
				t.Error("there is a ping")
				return nil
			}
			l.keepAlive(ping, func() { t.Error("it ends") }, done)
		}()
		for range 100 {
			<-talk.C
			if _, err := l.Write([]byte{0}); err != nil {
				t.Error(err)
			}
		}
		talk.Stop()
		close(done)
		<-ended
		_, _ = near.Close(), far.Close()
	})
}

// CP-10: a line on which a ping waits for its turn until it fails has died in one direction, whatever comes from the other. One that is not
// answered in time has been sent.
func TestPingsThatFail(t *testing.T) {
	t.Parallel()
	for err, ends := range map[error]bool{yamux.ErrConnectionWriteTimeout: true, yamux.ErrTimeout: false, nil: false} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			l, done := newLine(near), make(chan struct{})
			go func() { _, _ = io.Copy(io.Discard, l) }()
			go sends(time.Second, 100)(far, done)
			began, ended := time.Now(), time.Duration(0)
			stop := time.AfterFunc(time.Minute, func() { close(done) })
			l.keepAlive(func() error {
				<-time.After(writeTimeout / 2)
				return err
			}, func() {
				ended = time.Since(began)
				if stop.Stop() {
					close(done)
				}
			}, done)
			if want := keepAlive + writeTimeout/2; (ended == want) != ends || !ends && ended != 0 {
				t.Errorf("with a ping that fails because of %v, it ends after %s", err, ended)
			}
			_, _ = near.Close(), far.Close()
		})
	}
}
