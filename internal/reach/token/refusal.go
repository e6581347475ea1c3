package token

import (
	"errors"
	"strings"
)

// withoutRefusals takes out what API servers say of JSON Web Tokens that are not theirs: nobody there has an opinion, none of their keys
// has signed it, or an authentication webhook forbids it, without a word, which client-go calls unknown, or in those of OpenShift's, which
// knows opaque tokens alone. Several are a list in brackets.
var withoutRefusals = strings.NewReplacer(
	"invalid bearer token", "",
	"invalid signature, no keys found", "",
	"go-jose/go-jose: error in cryptographic primitive", "",
	"square/go-jose: error in cryptographic primitive", "",
	"unknown", "",
	"token lookup failed", "",
	", ", "", "[", "", "]", "")

// ErrDoubtful says of a token that an API server does not take it, and is not sure that it is none of its own.
var ErrDoubtful = errors.New("the token may be one of the API server")

// IsUnknown reports whether an API server that does not take a token is sure that it is not one of its own, by the text of its error. All
// other errors leave that open: a token that it has signed itself, or that is of an issuer it trusts, may be good although a lookup fails.
func IsUnknown(refusal string) bool { return withoutRefusals.Replace(refusal) == "" }
