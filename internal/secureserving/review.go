package secureserving

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// reviewTimeout is how long the API may take to review a request.
const reviewTimeout = 10 * time.Second

// reviewer asks the API who sends a request, and whether they may. Requests come as often as metrics are read, so answers are not cached.
//
// The filters of controller-runtime do the same by the libraries of the API server. These bring gRPC and OpenTelemetry, which an agent does
// not need otherwise.
type reviewer struct {
	tokens authenticationclient.TokenReviewInterface
	access authorizationclient.SubjectAccessReviewInterface
}

func newReviewer(api *rest.Config) (*reviewer, error) {
	tokens, err := authenticationclient.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("make a client that reviews tokens: %w", err)
	}
	access, err := authorizationclient.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("make a client that reviews access: %w", err)
	}
	return &reviewer{tokens.TokenReviews(), access.SubjectAccessReviews()}, nil
}

// guard answers those who may use the path of the request.
func (r *reviewer) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), reviewTimeout)
		defer cancel()
		user, err := r.authenticate(ctx, req)
		if err != nil {
			refuse(w, req, err, http.StatusInternalServerError, "the token cannot be reviewed now")
			return
		}
		if user == nil {
			refuse(w, req, nil, http.StatusUnauthorized, "send a token of the cluster's API as \"Authorization: Bearer TOKEN\"")
			return
		}
		allowed, err := r.authorize(ctx, user, req)
		if err != nil {
			refuse(w, req, err, http.StatusInternalServerError, "it cannot be reviewed now whether you may "+verb(req)+" "+req.URL.Path)
			return
		}
		if !allowed {
			refuse(w, req, nil, http.StatusForbidden, fmt.Sprintf("user %q may not %s the nonResourceURL %s", user.Username, verb(req), req.URL.Path))
			return
		}
		next.ServeHTTP(w, req)
	})
}

func verb(req *http.Request) string { return strings.ToLower(req.Method) }

// refuse answers with a code and what is wrong, and logs the error, which is none of the client's business.
func refuse(w http.ResponseWriter, req *http.Request, err error, code int, message string) {
	if err != nil {
		log.FromContext(req.Context()).Error(err, "A request for metrics cannot be reviewed", "path", req.URL.Path)
	}
	http.Error(w, message, code)
}

// authenticate returns who sends the request, or nil if it has no valid token.
func (r *reviewer) authenticate(ctx context.Context, req *http.Request) (*authenticationv1.UserInfo, error) {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, nil
	}
	review, err := r.tokens.Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if !review.Status.Authenticated {
		return nil, nil
	}
	return &review.Status.User, nil
}

func (r *reviewer) authorize(ctx context.Context, user *authenticationv1.UserInfo, req *http.Request) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := r.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: req.URL.Path, Verb: verb(req)},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}
