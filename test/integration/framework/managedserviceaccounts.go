package framework

import (
	"context"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/test/env"
)

// ManagedServiceAccount is one on a cluster, whose tokens are valid for so long.
func ManagedServiceAccount(cluster, name string, validity time.Duration) *authenticationv1beta1.ManagedServiceAccount {
	a := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	a.Spec.Rotation.Validity.Duration = validity
	return a
}

// AccountConfig has access to the managed cluster with the token of a Secret.
func AccountConfig(t *testing.T, secret *corev1.Secret) *rest.Config {
	t.Helper()
	config, err := Managed.Config()
	if err != nil {
		t.Fatal(err)
	}
	bearer := rest.AnonymousClientConfig(config)
	bearer.BearerToken, bearer.CAFile, bearer.CAData = string(secret.Data["token"]), "", secret.Data["ca.crt"]
	return bearer
}

// WhoOn says as whom the managed cluster knows the bearer of a token.
func WhoOn(t *testing.T, secret *corev1.Secret) (string, error) {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	err := env.ClientFor(t, AccountConfig(t, secret)).Create(t.Context(), review)
	return review.Status.UserInfo.Username, err
}

// AwaitTokenRefused waits until the managed cluster does not accept the token of a Secret any more.
func AwaitTokenRefused(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		if who, err := WhoOn(t, secret); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token is still that of %q, %w", who, err)
		}
		return nil
	})
}
