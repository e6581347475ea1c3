package token_test

import (
	"encoding/base64"
	"net/http"
	"testing"

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
