package token_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

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

// CP-09: what is done by a token ends with it. One that has ended is for who verifies it to refuse.
func TestContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for name, test := range map[string]struct {
			token string
			ends  bool
		}{
			"of a minute":    {jwt(fmt.Sprintf(`{"exp":%d}`, now.Add(time.Minute).Unix())), true},
			"of before":      {jwt(fmt.Sprintf(`{"exp":%d}`, now.Add(-time.Minute).Unix())), false},
			"without an end": {jwt(`{"sub":"a"}`), false},
			"opaque":         {"opaque", false},
			"none":           {"", false},
		} {
			ctx, cancel := token.Context(t.Context(), test.token)
			at, ends := ctx.Deadline()
			if ends != test.ends || ends && (at.Sub(now) <= 0 || at.Sub(now) > time.Minute) {
				t.Errorf("%s: ends %t, at %s", name, ends, at)
			}
			if ends {
				<-ctx.Done()
				if cause := context.Cause(ctx); cause == nil || cause.Error() != "the token has expired" {
					t.Errorf("%s: %v", name, cause)
				}
			}
			cancel()
		}
	})
}
