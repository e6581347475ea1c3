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

// Expiry is when the first of some tokens ends. It is zero where none says. Those that no API server takes any more count only where no
// other says, so that one which is opaque, and may be nobody's, does not make what lasts go on without an end.
func Expiry(tokens ...string) time.Time {
	var first, past time.Time
	for _, token := range tokens {
		if ends := expiryOf(token); isPast(ends) {
			past = earlier(past, ends)
		} else {
			first = earlier(first, ends)
		}
	}
	if first.IsZero() {
		return past
	}
	return first
}

// expiryOf is zero if the token does not say when it ends.
func expiryOf(token string) time.Time {
	if claims, ok := Claims(token); ok && claims.Expiry != nil {
		return claims.Expiry.Time()
	}
	return time.Time{}
}

// longestTaken is for how long after its end an API server may take a token: for the leeway, and while it remembers that the token was
// good, on a clock that is somewhat behind.
const longestTaken = jwt.DefaultLeeway + 2*time.Minute

// isPast reports whether a token ended so long ago that no API server takes it.
func isPast(ends time.Time) bool { return !ends.IsZero() && !ends.Add(longestTaken).After(time.Now()) }

// earlier is the first of two times; the zero one is never.
func earlier(one, other time.Time) time.Time {
	if one.IsZero() || !other.IsZero() && other.Before(one) {
		return other
	}
	return one
}

// ErrExpired is the cause of what ends with a token, and the answer to a request that has none when it ends.
var ErrExpired = apierrors.NewUnauthorized("the token has expired")

// Context ends when the first of some tokens does, and for one that has just ended, when nobody takes it any more. A token that does not
// say when, or that has ended long before, is left to who verifies it.
func Context(ctx context.Context, tokens ...string) (context.Context, context.CancelFunc) {
	var first time.Time
	for _, token := range tokens {
		ends := expiryOf(token)
		if isPast(ends) {
			continue
		}
		if !ends.IsZero() && !ends.After(time.Now()) {
			ends = ends.Add(jwt.DefaultLeeway) // for so long API servers take it
		}
		first = earlier(first, ends)
	}
	if first.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, first, ErrExpired)
}

// Bearer is the token that API servers take from the value of a header Authorization, empty if that has another credential or none. It ends
// at a space, whatever comes after that, and is behind a single one.
func Bearer(authorization string) string {
	words := strings.SplitN(strings.TrimSpace(authorization), " ", 3)
	if len(words) < 2 || !strings.EqualFold(words[0], "bearer") {
		return ""
	}
	return words[1]
}

// bearerProtocol is the prefix of a WebSocket protocol that is a token, for clients that can set no other header.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// Of are the tokens by which an API server may know the sender of a request. It tries one after the other, so each may be the one that
// counts.
func Of(header http.Header) (tokens []string) {
	if token := Bearer(header.Get("Authorization")); token != "" {
		tokens = append(tokens, token)
	}
	for protocol := range strings.SplitSeq(strings.Join(header.Values("Sec-Websocket-Protocol"), ","), ",") {
		encoded, is := strings.CutPrefix(strings.TrimSpace(protocol), bearerProtocol)
		if token, err := base64.RawURLEncoding.DecodeString(encoded); is && err == nil && len(token) > 0 {
			tokens = append(tokens, string(token))
		}
	}
	return tokens
}
