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

// CP-09: a token says when it ends, wherever it stands in a request.
func TestExpiry(t *testing.T) {
	t.Parallel()
	ends := jwt(`{"sub":"a","exp":1000}`)
	for name, test := range map[string]struct {
		header http.Header
		want   int64
	}{
		"header":           {http.Header{"Authorization": {"Bearer " + ends}}, 1000},
		"in other letters": {http.Header{"Authorization": {"  bEARER  " + ends}}, 1000},
		"WebSocket protocol": {http.Header{"Sec-Websocket-Protocol": {"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io." +
			base64.RawURLEncoding.EncodeToString([]byte(ends))}}, 1000},
		"without an end": {http.Header{"Authorization": {"Bearer " + jwt(`{"sub":"a"}`)}}, 0},
		"no JSON":        {http.Header{"Authorization": {"Bearer " + jwt(`x`)}}, 0},
		"no JWT":         {http.Header{"Authorization": {"Bearer a.b"}}, 0},
		"Basic":          {http.Header{"Authorization": {"Basic " + ends}}, 0},
		"none":           {http.Header{}, 0},
	} {
		at := token.Expiry(token.Of(test.header))
		if at.IsZero() != (test.want == 0) || test.want != 0 && at.Unix() != test.want {
			t.Errorf("%s: %s", name, at)
		}
	}
}

// CP-09: what is done by a token ends with it; by one that has just ended, when API servers stop to take it. One that ended before is for
// who verifies it to refuse.
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
		"of before":      {expiring(-2 * time.Minute), 0},
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
