// Package bootstrap has what clusters join a hub with: the tokens, and the objects that make tokens of use.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// TokenLifetime is how long a token from ServiceAccountToken can be used to join.
const TokenLifetime = time.Hour

// bootstrapTokenSelector finds the bootstrap tokens that are for joining clusters.
const bootstrapTokenSelector = "app=cluster-manager"

// ServiceAccountToken makes a token of the bootstrap service account, with which clusters join. After the account was
// deleted, it is created again.
func ServiceAccountToken(ctx context.Context, hub *hubapi.Hub) (string, error) {
	token, err := requestToken(ctx, hub)
	if !apierrors.IsNotFound(err) {
		return token, hub.Explain("make a token to join with", err)
	}
	if err := hub.CheckIsHub(ctx); err != nil {
		return "", err
	}
	if err := restoreAccess(ctx, hub); err != nil {
		return "", err
	}
	token, err = requestToken(ctx, hub)
	if apierrors.IsNotFound(err) {
		return "", noCredential(ctx, hub, fmt.Errorf("the service account %s/%s is missing: %w",
			fleet.NamespaceOperators, fleet.ServiceAccountBootstrap, err))
	}
	return token, hub.Explain("make a token to join with", err)
}

func requestToken(ctx context.Context, hub *hubapi.Hub) (string, error) {
	seconds := int64(TokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	err := hub.Raw().Post().Namespace(fleet.NamespaceOperators).Resource("serviceaccounts").Name(fleet.ServiceAccountBootstrap).
		SubResource("token").Body(request).Do(ctx).Into(request)
	return request.Status.Token, err
}

// Token reads the newest bootstrap token that has not expired, as <id>.<secret>.
func Token(ctx context.Context, hub *hubapi.Hub, now time.Time) (string, error) {
	list := &corev1.SecretList{}
	err := hub.Client(secrets).Namespace(metav1.NamespaceSystem).
		List(ctx, metav1.ListOptions{LabelSelector: bootstrapTokenSelector}, list)
	if err != nil {
		return "", hub.Explain("read the bootstrap tokens", err)
	}
	var newest *corev1.Secret
	for i := range list.Items {
		secret := &list.Items[i]
		if usable(secret, now) && (newest == nil || newest.CreationTimestamp.Before(&secret.CreationTimestamp)) {
			newest = secret
		}
	}
	if newest == nil {
		return "", noCredential(ctx, hub, fmt.Errorf("none of the %d Secrets %s<id> with the label %s in %s holds a token that has not expired",
			len(list.Items), bootstrapapi.BootstrapTokenSecretPrefix, bootstrapTokenSelector, metav1.NamespaceSystem))
	}
	return tokenOf(newest), ensureRole(ctx, hub)
}

func usable(secret *corev1.Secret, now time.Time) bool {
	id, named := bootstrapsecrets.ParseName(secret.Name)
	return named && secret.DeletionTimestamp.IsZero() && !bootstrapsecrets.HasExpired(secret, now) &&
		bootstraputil.IsValidBootstrapToken(tokenOf(secret)) && id == bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenIDKey)
}

func tokenOf(secret *corev1.Secret) string {
	return bootstraputil.TokenFromIDAndSecret(
		bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenIDKey),
		bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenSecretKey))
}

// noCredential says what is missing on the hub, unless it is no hub at all.
func noCredential(ctx context.Context, hub *hubapi.Hub, missing error) error {
	if err := hub.CheckIsHub(ctx); errors.Is(err, hubapi.ErrNotAHub) {
		return err
	}
	return fmt.Errorf("no token to join with: %w\nTry the other kind of token (with or without --use-bootstrap-token); "+
		"a hub of Capstan makes both when it starts.", missing)
}
