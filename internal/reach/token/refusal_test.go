package token_test

import (
	"testing"

	"github.com/capstan-io/capstan/internal/reach/token"
)

// CP-09: an API server knows that a token is not its own only when no authenticator there may know it.
func TestIsUnknown(t *testing.T) {
	t.Parallel()
	for refusal, want := range map[string]bool{
		"":                                 true,
		"invalid bearer token":             true,
		"invalid signature, no keys found": true,
		"go-jose/go-jose: error in cryptographic primitive":                        true,
		"[invalid bearer token, square/go-jose: error in cryptographic primitive]": true,
		"[invalid signature, no keys found, invalid bearer token]":                 true,
		"[[invalid signature, no keys found, unknown], invalid bearer token]":      true,
		"unknown": true,
		"[invalid bearer token, token lookup failed]":                                         true,
		"[invalid signature, no keys found, [invalid bearer token, token lookup failed]]":     true,
		"[invalid bearer token, token lookup failed, service account token has expired]":      false,
		"[invalid bearer token, our webhook does not know it]":                                false,
		"oidc: authenticator not initialized":                                                 false,
		"oidc: verify token: unknown":                                                         false,
		"service account token has expired":                                                   false,
		"service account token has been invalidated":                                          false,
		"[invalid bearer token, service account token has been invalidated]":                  false,
		`serviceaccounts "a" not found`:                                                       false,
		"etcdserver: request timed out":                                                       false,
		"context deadline exceeded":                                                           false,
		`[invalid signature, no keys found, Post "https://webhook": dial tcp: EOF]`:           false,
		`oidc: verify token: failed to verify signature: fetching keys oidc: get keys failed`: false,
		`token audiences ["a"] is invalid for the target audiences ["b"]`:                     false,
	} {
		if got := token.IsUnknown(refusal); got != want {
			t.Errorf("%q: %t", refusal, got)
		}
	}
}
