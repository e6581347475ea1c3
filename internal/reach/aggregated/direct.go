package aggregated

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/reach/token"
)

// shutdownTimeout is how long requests may go on at the second port when the process ends.
const shutdownTimeout = 5 * time.Second

// publish publishes what verifies the certificate.
func (d *Direct) publish(ca []byte) {
	if d != nil && d.Published != nil {
		d.Published(ca)
	}
}

// serveDirectly serves the second port until ctx ends.
func (o *Options) serveDirectly(ctx context.Context, direct *Direct, server *genericapiserver.GenericAPIServer, client *rest.Config) error {
	tokens, err := o.tokens(client)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(o.SecureServing.BindAddress.String(), strconv.Itoa(direct.Port))
	serving := *server.SecureServingInfo
	if serving.Listener, _, err = genericoptions.CreateListener("tcp", address, net.ListenConfig{}); err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	stopped, _, err := serving.Serve(direct.Handler(server.Handler, tokens), shutdownTimeout, ctx.Done())
	if err != nil {
		return fmt.Errorf("serve %s: %w", address, err)
	}
	<-stopped
	return nil
}

// errorTTL is for how long tokens are not reviewed again whose review has failed or leaves them in doubt.
const errorTTL = time.Second

// tokens has the API server review tokens, and caches the results for as long as the handler of the API does. What is no token of the
// hub is no error; that the API server is not sure of it is token.ErrDoubtful. Errors are cached for errorTTL.
func (o *Options) tokens(config *rest.Config) (authenticator.Token, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	authenticate := func(ctx context.Context, sent string) (*authenticator.Response, bool, error) {
		ctx, cancel := context.WithTimeout(ctx, o.Authentication.TokenRequestTimeout)
		defer cancel()
		review, err := client.AuthenticationV1().TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: sent}}, metav1.CreateOptions{})
		if err != nil {
			return nil, false, err
		}
		if !review.Status.Authenticated {
			return nil, false, doubt(review.Status.Error)
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: review.Status.User.Username}}, true, nil
	}
	withErrors := cache.New(authenticator.TokenFunc(authenticate), true, 0, errorTTL)
	return cache.New(withErrors, false, o.Authentication.CacheTTL, o.Authentication.CacheTTL), nil
}

// doubt is an error if a token that the API server refuses may be one of the hub nevertheless.
func doubt(refusal string) error {
	if token.IsUnknown(refusal) {
		return nil
	}
	return fmt.Errorf("%w: %s", token.ErrDoubtful, refusal)
}
