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

// tokens has the API server review tokens, and caches the results for as long as the handler of the API does. What is no token of the
// hub is no error.
func (o *Options) tokens(config *rest.Config) (authenticator.Token, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	authenticate := func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		ctx, cancel := context.WithTimeout(ctx, o.Authentication.TokenRequestTimeout)
		defer cancel()
		review, err := client.AuthenticationV1().TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil || !review.Status.Authenticated {
			return nil, false, err
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: review.Status.User.Username}}, true, nil
	}
	return cache.New(authenticator.TokenFunc(authenticate), false, o.Authentication.CacheTTL, o.Authentication.CacheTTL), nil
}
