package reach

import (
	"context"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// tokenMargin is how long before its end a token is read again. Agents have renewed it by then.
	tokenMargin = time.Minute
	// readInterval is how long a token that is about to end is not read again then.
	readInterval = 5 * time.Second
)

// accountToken is the token of a ManagedServiceAccount. It is read when it is requested first, when it is about to end, and when the
// cluster has refused it.
type accountToken struct {
	read  func(ctx context.Context) (string, error)
	clock clock.PassiveClock

	reading sync.Mutex // one at a time

	mu     sync.Mutex
	token  string
	ends   *metav1.Time // nil for a token that does not say it
	readAt time.Time
}

// get returns the token. One that cannot be read again is good until its end, and so it is for all other requests while one reads it.
func (a *accountToken) get(ctx context.Context) (string, error) {
	token, good := a.known()
	switch {
	case good:
		return token, nil
	case token == "":
		a.reading.Lock()
	case !a.reading.TryLock():
		return token, nil
	}
	defer a.reading.Unlock()
	if token, good := a.known(); good { // another request has read it
		return token, nil
	}
	token, err := a.read(ctx)
	return a.renewed(token, err)
}

// known is the token that has been read, empty if it has ended, and whether it need not be read again.
func (a *accountToken) known() (token string, good bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if !a.lasts(now) {
		return "", false
	}
	return a.token, a.lasts(now.Add(tokenMargin)) || now.Before(a.readAt.Add(readInterval))
}

// renewed takes note of a token that was read, or of why it was not, and returns the one to use.
func (a *accountToken) renewed(token string, err error) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	a.readAt = now
	switch {
	case err != nil && a.lasts(now):
		return a.token, nil
	case err != nil:
		return "", err
	}
	a.token, a.ends = token, expiryOf(token)
	return token, nil
}

// lasts reports whether the token that has been read is valid until then.
func (a *accountToken) lasts(until time.Time) bool {
	return a.token != "" && (a.ends == nil || until.Before(a.ends.Time))
}

// forget has a token that was refused be read again.
func (a *accountToken) forget(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == token {
		a.token, a.ends = "", nil
	}
}

// accountTransport adds the token to requests, next to the credentials for the hub.
type accountTransport struct {
	http.RoundTripper
	token *accountToken
}

// RoundTrip sends a request as the account.
func (t accountTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.token.get(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(fleet.HeaderClusterAuthorization, "Bearer "+token)
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		t.token.forget(token)
	}
	return response, err
}
