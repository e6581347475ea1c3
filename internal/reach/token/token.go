// Package token reads what tokens say of themselves. Nothing of it is verified: that is for whoever they are sent to.
package token

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// algorithms are those with which API servers sign tokens of service accounts, and issuers theirs.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// Claims are those of a JSON Web Token; others have none.
func Claims(token string) (claims jwt.Claims, ok bool) {
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return claims, false
	}
	return claims, parsed.UnsafeClaimsWithoutVerification(&claims) == nil
}

// Expiry is when a token ends. It is zero where the token does not say.
func Expiry(token string) time.Time {
	claims, ok := Claims(token)
	if !ok || claims.Expiry == nil {
		return time.Time{}
	}
	return claims.Expiry.Time()
}

// ErrExpired is the cause of what ends with a token, and the answer to a request that has none when it ends.
var ErrExpired = apierrors.NewUnauthorized("the token has expired")

// Context ends when the token does, and for one that has just ended, when nobody takes it any more. A token that does not say when, or that
// has ended before, is left to who verifies it.
func Context(ctx context.Context, token string) (context.Context, context.CancelFunc) {
	now, ends := time.Now(), Expiry(token)
	if !ends.After(now) {
		ends = ends.Add(jwt.DefaultLeeway) // for so long API servers take it
	}
	if !ends.After(now) {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, ends, ErrExpired)
}

// Bearer is the token in the value of a header Authorization, empty if it has another credential or none.
func Bearer(authorization string) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// bearerProtocol is the prefix of a WebSocket protocol that is a token, for clients that can set no other header.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// Of is the token by which an API server knows the sender of a request, empty if there is none.
func Of(header http.Header) string {
	if token := Bearer(header.Get("Authorization")); token != "" {
		return token
	}
	for protocol := range strings.SplitSeq(strings.Join(header.Values("Sec-Websocket-Protocol"), ","), ",") {
		if encoded, is := strings.CutPrefix(strings.TrimSpace(protocol), bearerProtocol); is {
			token, _ := base64.RawURLEncoding.DecodeString(encoded)
			return string(token)
		}
	}
	return ""
}
