package debugserver

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/hub/placement/debug"
)

const (
	// tokenTTL is how long the result of a TokenReview is cached, reviewTimeout how long a review may take.
	tokenTTL      = 10 * time.Second
	reviewTimeout = 10 * time.Second

	// Where a cluster publishes the CA of its clients.
	authenticationNamespace = "kube-system"
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAKey             = "client-ca-file"
)

// callerAuthenticator authenticates callers with the client certificates and tokens of the manager's cluster.
type callerAuthenticator struct {
	authenticator.Request
	ca dynamiccertificates.CAContentProvider
}

var errNoCA = apierrors.NewServiceUnavailable("the CA that signs client certificates of this cluster is not known yet: it is read from the ConfigMap " +
	authenticationNamespace + "/" + authenticationConfigMap + "; ask again in a moment, or send a token")

// newCallerAuthenticator authenticates with TokenReviews and the client CA of the manager's cluster.
func newCallerAuthenticator(mgr ctrl.Manager) (*callerAuthenticator, error) {
	client, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", authenticationNamespace, authenticationConfigMap,
		clientCAKey, client)
	if err != nil {
		return nil, fmt.Errorf("read the client CA of the cluster: %w", err)
	}
	who, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:            client.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewTimeout,
		CacheTTL:                           tokenTTL,
		WebhookRetryBackoff:                &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 3},
		ClientCertificateCAContentProvider: ca,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("prepare the authentication of callers: %w", err)
	}
	return &callerAuthenticator{who, ca}, mgr.Add(clientCA{ca})
}

// authenticate adds the user to the context of requests, as an API server does. Anonymous requests are passed on; the handler rejects
// them.
func (c *callerAuthenticator) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The answer would be that for the caller, not for the impersonated user.
		if r.Header.Get(transport.ImpersonateUserHeader) != "" {
			debug.WriteError(w, r, apierrors.NewBadRequest("impersonation is not supported: leave out "+transport.ImpersonateUserHeader))
			return
		}
		found, known, err := c.AuthenticateRequest(r)
		switch {
		case known:
			r = r.WithContext(request.WithUser(r.Context(), found.User))
		case len(r.TLS.PeerCertificates) > 0 && len(c.ca.CurrentCABundleContent()) == 0:
			debug.WriteError(w, r, errNoCA)
			return
		case err != nil:
			log.FromContext(r.Context()).V(1).Info("Cannot authenticate the caller of the debug endpoint", "error", err.Error())
		}
		next.ServeHTTP(w, r)
	})
}
