package serviceaccount

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// renewAt is the share of its lifetime after which a token is replaced.
const renewAt = 0.8

// slack is by how much a token may live longer than is desired, and still be kept.
const slack = time.Minute

// claims are what a token of a service account says of itself. Only the API server that has issued it can report whether it is true.
type claims struct {
	subject         string
	account         types.UID
	issued, expires time.Time
}

// parse reads the claims of a token without verifying them.
func parse(token []byte) (claims, error) {
	parts := strings.Split(string(token), ".")
	if len(parts) != 3 {
		return claims{}, errors.New("it is no JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, errors.New("its claims are not in base64")
	}
	var decoded struct {
		Subject    string  `json:"sub"`
		IssuedAt   float64 `json:"iat"`
		Expires    float64 `json:"exp"`
		Kubernetes struct {
			ServiceAccount struct {
				UID types.UID `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &decoded); err != nil {
		return claims{}, errors.New("its claims are not in JSON")
	}
	if decoded.Expires <= decoded.IssuedAt || decoded.IssuedAt <= 0 {
		return claims{}, errors.New("it does not say until when it is valid")
	}
	return claims{
		subject: decoded.Subject, account: decoded.Kubernetes.ServiceAccount.UID,
		issued: time.Unix(int64(decoded.IssuedAt), 0), expires: time.Unix(int64(decoded.Expires), 0),
	}, nil
}

// due is when the token is to be replaced. What counts is how long it lives, which may be shorter than was requested.
func (c claims) due() time.Time {
	return c.issued.Add(time.Duration(float64(c.expires.Sub(c.issued)) * renewAt))
}

// requirements are what the token in a Secret has to meet.
type requirements struct {
	account  *corev1.ServiceAccount
	owner    *authenticationv1beta1.ManagedServiceAccount
	ca       []byte
	validity time.Duration
}

// stale returns why the token in a Secret has to be replaced; nothing if it need not be.
func (r requirements) stale(secret *corev1.Secret, now time.Time) (reason string, token claims) {
	if secret == nil {
		return "there is no Secret with a token", token
	}
	token, err := parse(secret.Data[corev1.ServiceAccountTokenKey])
	switch {
	case err != nil:
		return "the Secret has no usable token: " + err.Error(), token
	case token.subject != fleet.ServiceAccountUser(r.account.Namespace, r.account.Name):
		return fmt.Sprintf("the token is of %q", token.subject), token
	case token.account != "" && token.account != r.account.UID:
		return "the token is of a service account that does not exist any more", token
	case !now.Before(token.due()):
		return "most of the lifetime of the token has passed", token
	case isShortened(secret, r.validity) && token.expires.Sub(token.issued) > r.validity+slack:
		return fmt.Sprintf("the token lives longer than %s", r.validity), token
	case !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], r.ca):
		return "the certificate authority of the cluster is another one", token
	case !isOwned(secret, r.owner):
		return "the Secret is of a ManagedServiceAccount that does not exist any more", token
	}
	return "", token
}

// isShortened reports whether a Secret has a token for which another lifetime was requested than is desired now. Without that, an API
// server that lengthens all tokens would get requests without an end.
func isShortened(secret *corev1.Secret, validity time.Duration) bool {
	requested, known := secret.Annotations[fleet.AnnotationRequestedValidity]
	return known && requested != validity.String()
}

func isOwned(secret *corev1.Secret, owner *authenticationv1beta1.ManagedServiceAccount) bool {
	for _, reference := range secret.OwnerReferences {
		if reference.UID == owner.UID {
			return true
		}
	}
	return false
}
