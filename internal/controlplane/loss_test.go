package controlplane

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"
)

// SC-16 SC-24: a process ends when it alone has lost the external etcd, and goes on when that answers again in time, or is away for all.
func TestLossOfTheExternalEtcd(t *testing.T) {
	t.Parallel()
	errAway := errors.New("no route to host")
	for name, test := range map[string]struct {
		// away says whether the etcd does not answer after some time, and elsewhere whether another process is ready then.
		away, elsewhere func(after time.Duration) bool
		// anew says whether it answers over new connections all the same.
		anew bool
		ends bool
	}{
		"it answers":              {away: never, elsewhere: always},
		"it answers now and then": {away: func(after time.Duration) bool { return after%(25*time.Second) != 0 }, elsewhere: always},
		"it is lost":              {away: always, elsewhere: always, ends: true},
		"it is away for all":      {away: always, elsewhere: never},
		"it is back for all, and connections wait": {away: always, elsewhere: always, anew: true},
		"another one has it again": {
			away: always, elsewhere: func(after time.Duration) bool { return after > 10*time.Minute }, ends: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				err := loss{
					read: func(context.Context) error {
						if test.away(time.Since(began)) {
							return errAway
						}
						return nil
					},
					readAnew: func(context.Context) error {
						if test.anew {
							return nil
						}
						return errAway
					},
					readyElsewhere: func(context.Context) bool { return test.elsewhere(time.Since(began)) },
				}.await(ctx)
				if errors.Is(err, errAway) != test.ends {
					t.Errorf("it ends with %v after %s", err, time.Since(began))
				}
			})
		})
	}
}

func never(time.Duration) bool  { return false }
func always(time.Duration) bool { return true }

// Who looks for another process of the hub finds those that are ready, and no server of others.
func TestAnyReady(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		other  bool
		want   bool
	}{
		"ready":             {status: http.StatusOK, want: true},
		"not ready":         {status: http.StatusInternalServerError},
		"no server of ours": {status: http.StatusOK, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" {
					t.Errorf("it is asked for %s", r.URL.Path)
				}
				w.WriteHeader(test.status)
			}))
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			roots := x509.NewCertPool()
			if !test.other {
				roots.AddCert(server.Certificate())
			}
			hub, err := url.Parse(server.URL)
			must(t, err)
			if got := anyReady(t.Context(), hub, roots); got != test.want {
				t.Errorf("ready: %t, want %t", got, test.want)
			}
		})
	}
}

// A hub ends when its storage fails, at once, and when its API server ends; it stops in order when it is to, or its controllers end.
func TestAwaitEnd(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		ends  string
		fails bool
	}{
		"it is stopped":       {ends: "ctx"},
		"the controllers end": {ends: "controllers"},
		"the API server ends": {ends: "server", fails: true},
		"the storage fails":   {ends: "storage", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(who string) *part {
				p := start(t.Context(), func(ctx context.Context) error {
					if who == test.ends {
						return broken
					}
					<-ctx.Done()
					return nil
				})
				t.Cleanup(p.stop)
				return p
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if test.ends == "ctx" {
				stop()
			}
			err := awaitEnd(ctx, run("controllers"), run("server"), run("storage"))
			if errors.Is(err, broken) != test.fails || !test.fails && err != nil {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}
