package clusterproxy

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

// waiting is an API server that answers when nobody waits any more.
type waiting struct{ begun, ended chan struct{} }

func (w waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	close(w.begun)
	<-r.Context().Done()
	close(w.ended)
	return nil, r.Context().Err()
}

// answering has a request served, and returns what is answered in the end.
func answering(h http.Handler, r *http.Request) <-chan *httptest.ResponseRecorder {
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		answered <- w
	}()
	return answered
}

// handlerUnder is a handler under rules, which allow all, of a cluster that does not exist.
func handlerUnder(t *testing.T, allowed *rules) *apiHandler {
	t.Helper()
	allowed.set(nil)
	h, err := newHandler(&rest.Config{Host: "https://cluster.invalid"}, allowed, false)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// CP-09, MS-02: what is open with the token of a service account of the cluster ends with that token, which for API servers is the second
// word of the header. One that has ended long before is for the API server to refuse.
func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	for _, lifetime := range []time.Duration{time.Minute, -time.Hour, 0} {
		synctest.Test(t, func(t *testing.T) {
			h := handlerUnder(t, &rules{clock: clock.RealClock{}})
			server := waiting{make(chan struct{}), make(chan struct{})}
			h.none.ordinary = server
			claims := fmt.Sprintf(`{"exp":%d}`, time.Now().Add(lifetime).Unix())
			if lifetime == 0 {
				claims = `{"sub":"never"}`
			}
			ctx, leave := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?watch=1", http.NoBody)
			r.Header.Set(access.HeaderUser, "alice")
			r.Header.Set(fleet.HeaderClusterAuthorization, "Bearer "+encode([]byte(`{"alg":"RS256"}`))+"."+encode([]byte(claims))+".c2ln x")
			answered := answering(h, r)
			<-server.begun
			begun := time.Now()
			select {
			case w := <-answered:
				open := time.Since(begun)
				if lifetime <= 0 || open > lifetime || open < lifetime-time.Second || w.Code != http.StatusUnauthorized {
					t.Errorf("with a token for %s: %d after %s", lifetime, w.Code, open)
				}
			case <-time.After(time.Hour):
				if lifetime > 0 {
					t.Errorf("with a token for %s, it goes on", lifetime)
				}
				leave()
				<-answered
			}
			leave()
		})
	}
}
