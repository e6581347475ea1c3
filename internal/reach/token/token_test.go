package token_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/reach/token"
)

func jwt(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(claims)) + ".c2ln"
}

func until(seconds int) string { return jwt(fmt.Sprintf(`{"sub":"a","exp":%d}`, seconds)) }

// protocol is a WebSocket protocol that is a token.
func protocol(token string) string {
	return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
}

// CP-09: a token says when it ends, wherever it stands in a request, and as API servers read it there. Of several, the first end counts
// that may be of the one by which the sender is known.
func TestExpiry(t *testing.T) {
	t.Parallel()
	const end, before = 10_000_000_000, 1000 // in the year 2286, and in 1970
	ends, later, past := until(end), until(end+1000), until(before)
	authorization := func(value string) http.Header { return http.Header{"Authorization": {value}} }
	protocols := func(values ...string) http.Header { return http.Header{"Sec-Websocket-Protocol": values} }
	both := func(inHeader, inProtocol string) http.Header {
		return http.Header{"Authorization": {"Bearer " + inHeader}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io, " + protocol(inProtocol)}}
	}
	for name, test := range map[string]struct {
		header http.Header
		want   int64
	}{
		"header":                       {authorization("Bearer " + ends), end},
		"in other letters":             {authorization("  bEARER " + ends + " "), end},
		"with a word behind it":        {authorization("Bearer " + ends + " x"), end},
		"with spaces behind it":        {authorization("Bearer " + ends + "  x y"), end},
		"behind two spaces":            {authorization("Bearer  " + ends), 0}, // for API servers, there is none
		"behind a tab":                 {authorization("Bearer\t" + ends), 0},
		"without a scheme":             {authorization(ends), 0},
		"behind another header":        {http.Header{"Authorization": {"Bearer " + jwt(`{}`), "Bearer " + ends}}, 0},
		"WebSocket protocol":           {protocols("v5.channel.k8s.io, " + protocol(ends)), end},
		"in a header of its own":       {protocols("v5.channel.k8s.io", protocol(ends)), end},
		"first of WebSocket protocols": {protocols(protocol(later), protocol(ends)), end},
		"WebSocket protocol with an opaque token beside":            {both("opaque", ends), end},
		"WebSocket protocol with a later token beside":              {both(later, ends), end},
		"WebSocket protocol with a sooner token beside":             {both(ends, later), end},
		"WebSocket protocol that is no base64":                      {protocols("base64url.bearer.authorization.k8s.io.===" + ends), 0},
		"WebSocket protocol of before, with a token beside":         {both(ends, past), end},
		"WebSocket protocol of before, with an opaque token beside": {both("opaque", past), before},
		"token of before, with a WebSocket protocol beside":         {both(past, ends), end},
		"of before alone": {authorization("Bearer " + past), before},
		"both of before":  {both(past, until(before+1000)), before},
		"without an end":  {authorization("Bearer " + jwt(`{"sub":"a"}`)), 0},
		"no JSON":         {authorization("Bearer " + jwt(`x`)), 0},
		"no JWT":          {authorization("Bearer a.b"), 0},
		"Basic":           {authorization("Basic " + ends), 0},
		"none":            {http.Header{}, 0},
	} {
		at := token.Expiry(token.Of(test.header)...)
		if at.IsZero() != (test.want == 0) || test.want != 0 && at.Unix() != test.want {
			t.Errorf("%s: %s", name, at)
		}
	}
}

// CP-09: what is done by several tokens ends with the first of those that still hold.
func TestContextOfTokens(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) string { return until(int(time.Now().Add(d).Unix())) }
	synctest.Test(t, func(t *testing.T) {
		soon := time.Now().Add(time.Minute)
		ctx, cancel := token.Context(t.Context(), in(time.Hour), in(-time.Hour), "opaque", in(time.Minute))
		defer cancel()
		if ends, _ := ctx.Deadline(); ends.Unix() != soon.Unix() {
			t.Errorf("it ends at %s, want %s", ends, soon)
		}
	})
}

// CP-09: what is done by a token ends with it; by one that has just ended, when API servers stop to take it. One that ended long before is
// for who verifies it to refuse.
func TestContext(t *testing.T) {
	t.Parallel()
	expiring := func(in time.Duration) func() string {
		return func() string { return jwt(fmt.Sprintf(`{"exp":%d}`, time.Now().Add(in).Unix())) }
	}
	for name, test := range map[string]struct {
		token func() string
		ends  time.Duration
	}{
		"of a minute":    {expiring(time.Minute), time.Minute},
		"just ended":     {expiring(-20 * time.Second), 40 * time.Second},
		"ended before":   {expiring(-2 * time.Minute), time.Nanosecond},
		"of long before": {expiring(-time.Hour), 0},
		"without an end": {func() string { return jwt(`{"sub":"a"}`) }, 0},
		"opaque":         {func() string { return "opaque" }, 0},
		"none":           {func() string { return "" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := token.Context(t.Context(), test.token())
				defer cancel()
				if _, ends := ctx.Deadline(); ends != (test.ends > 0) {
					t.Fatalf("it ends: %t", ends)
				}
				if test.ends == 0 {
					return
				}
				<-ctx.Done()
				if took := time.Since(began); took > test.ends || took <= test.ends-time.Second {
					t.Errorf("it ended after %s, want %s", took, test.ends)
				}
				if cause := context.Cause(ctx); !apierrors.IsUnauthorized(cause) || cause.Error() != "the token has expired" {
					t.Errorf("it ended because of %v", cause)
				}
			})
		})
	}
}
