package sandbox

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errDiskFull = errors.New("no space left on device")

// A cluster ends also when its API server does not: at once when the database has failed, which the API server may wait for.
func TestStopEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ends, failed, failsMeanwhile bool
		want                         time.Duration
	}{
		"an API server that ends":               {ends: true},
		"an API server that does not end":       {want: stopTimeout},
		"a failed database":                     {failed: true},
		"a database that fails in the meantime": {failsMeanwhile: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &Cluster{ended: make(chan struct{})}
				failed := make(chan error, 1)
				server := &apiServer{started: true, done: make(chan struct{})}
				told := false
				server.cancel = func() {
					told = true
					switch {
					case test.ends:
						close(server.done)
					case test.failsMeanwhile:
						failed <- errDiskFull
					}
				}
				c.follow(t.Context(), server, failed)
				if test.failed {
					failed <- errDiskFull
					<-c.Ended()
				}
				begin := time.Now()
				if err := c.Stop(); err != nil {
					t.Error(err)
				}
				if told == test.failed {
					t.Errorf("the API server is told to end: %t", told)
				}
				if got := time.Since(begin); got != test.want {
					t.Errorf("stopped after %s, want %s", got, test.want)
				}
				if got, want := errors.Is(c.Err(), errDiskFull), test.failed || test.failsMeanwhile; got != want {
					t.Errorf("ended with %v", c.Err())
				}
				select {
				case failed <- nil: // ends what follows the database
				default:
				}
			})
		})
	}
}

// A start does not go on when the database fails meanwhile, and says why.
func TestStartEndsWithTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Cluster{ended: make(chan struct{})}
		failed := make(chan error, 1)
		c.follow(t.Context(), &apiServer{done: make(chan struct{})}, failed)
		ctx, release := c.whileUp(t.Context())
		defer release()
		if err := c.causeOf(ctx.Err()); err != nil {
			t.Errorf("ended before the database failed: %v", err)
		}
		failed <- errDiskFull
		<-ctx.Done()
		if err := c.causeOf(ctx.Err()); !errors.Is(err, errDiskFull) {
			t.Errorf("got %v, want %v", err, errDiskFull)
		}
	})
}
