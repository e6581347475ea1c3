package clusterproxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/token"
)

const (
	// reviewRate and reviewBurst bound, per second and in a row, how often the API server reviews tokens, and reviewTimeout how
	// long it may take to answer.
	reviewRate, reviewBurst = 50, 100
	reviewTimeout           = 10 * time.Second
	// maxReviews is of how many tokens the answer is remembered.
	maxReviews = 4096
)

// tokens finds out who on the cluster has a token of an issuer that the cluster trusts.
type tokens struct {
	rules   *rules
	reviews authenticationv1client.TokenReviewInterface
	// own remembers of tokens whether the API server knows them.
	own *cache.LRUExpireCache
}

func newTokens(managed *rest.Config, rules *rules) (*tokens, error) {
	config := rest.CopyConfig(managed)
	config.QPS, config.Burst, config.Timeout = reviewRate, reviewBurst, reviewTimeout
	client, err := authenticationv1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &tokens{rules: rules, reviews: client.TokenReviews(), own: cache.NewLRUExpireCacheWithClock(maxReviews, rules.clock)}, nil
}

// issuedTo says to whom the issuer has issued a token. It is not issued if it is of another issuer, or of somebody whom the API server of
// the cluster knows by it: that then says itself who this is.
func (t *tokens) issuedTo(ctx context.Context, credential string) (user access.User, issued bool, err error) {
	issuer, sent := t.rules.issuer(), token.Bearer(credential)
	if issuer == nil || !issuer.Concerns(sent) {
		return access.User{}, false, nil
	}
	if len(sent) > oidc.MaxToken {
		return access.User{}, false, notAccepted("it has %d bytes, and the limit is %d", len(sent), oidc.MaxToken)
	}
	known, err := t.known(ctx, sent, issuer.TTL())
	if err != nil || known {
		return access.User{}, false, err
	}
	user, err = issuer.Authenticate(ctx, sent)
	if errors.Is(err, oidc.ErrUnavailable) {
		return user, false, apierrors.NewServiceUnavailable(fmt.Sprintf("the managed cluster cannot tell whose token of the OIDC issuer this is: %v",
			err))
	}
	if err != nil {
		return user, false, notAccepted("%w", err)
	}
	return user, true, nil
}

func notAccepted(format string, args ...any) error {
	return apierrors.NewUnauthorized(fmt.Sprintf("the managed cluster does not accept the token of the OIDC issuer: %v",
		fmt.Errorf(format, args...)))
}

// known has the API server review whether the token is one of its own.
func (t *tokens) known(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	key := sha256.Sum256([]byte(token))
	if cached, found := t.own.Get(key); found {
		return cached.(bool), nil //nolint:forcetypeassert // nothing else is put there
	}
	request := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := t.reviews.Create(ctx, request, metav1.CreateOptions{})
	if err != nil {
		return false, unreviewed(err)
	}
	if ttl > 0 {
		t.own.Add(key, review.Status.Authenticated, ttl)
	}
	return review.Status.Authenticated, nil
}

// unreviewed says why the API server does not review a token: it is not reached, or answers that it does not.
func unreviewed(err error) error {
	message := fmt.Sprintf("the agent cannot ask the API server of its cluster whose token this is: %v", err)
	if errors.As(err, new(apierrors.APIStatus)) {
		return apierrors.NewServiceUnavailable(message)
	}
	return api.Unreached("", message)
}
