// Package debug has the HTTP endpoint that explains what placements select, and what a Placement that does not exist would select.
package debug

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// How long decisions of the authorizer are cached. Those that deny access are cached for less, as users wait for a right that they got.
const (
	allowedTTL = 10 * time.Second
	deniedTTL  = 2 * time.Second
)

// Explainer explains what a placement selects. The placement need not exist.
type Explainer interface {
	Explain(ctx context.Context, placement *clusterv1beta1.Placement) (*scheduler.Explanation, error)
}

// Endpoint answers GET NAMESPACE/NAME and POST below report.Path. Its zero value is ready to serve: until Open is called, it answers that
// the service is not available yet. The server must have authenticated the caller, and put the user into the context of the request.
type Endpoint struct{ open atomic.Pointer[server] }

// server answers the requests of an opened endpoint.
type server struct {
	api        client.Client
	authorizer authorizer.Authorizer
	explainer  Explainer
}

// Open makes the endpoint answer requests. It reads Placements from the API, which also validates those that do not exist, and authorizes
// callers with the reviews.
func (e *Endpoint) Open(api client.Client, reviews authorizationv1.AuthorizationV1Interface, explainer Explainer) error {
	rights, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: reviews,
		AllowCacheTTL:             allowedTTL,
		DenyCacheTTL:              deniedTTL,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 3},
	}.New()
	if err != nil {
		return err
	}
	e.open.Store(&server{api: api, authorizer: rights, explainer: explainer})
	return nil
}

// ServeHTTP answers one request.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := e.open.Load()
	if s == nil {
		WriteError(w, r, errStarting)
		return
	}
	answer, err := s.newReport(w, r)
	if err != nil {
		WriteError(w, r, err)
		return
	}
	writeJSON(w, r, http.StatusOK, answer)
}

// errorResponse is a Status, as API servers return it, with the field error that readers of reports know.
type errorResponse struct {
	metav1.Status `json:",inline"`
	Error         string `json:"error"`
}

// WriteError answers a request with an error, as an API server does.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Code == http.StatusInternalServerError && r.Context().Err() == nil {
		log.FromContext(r.Context()).Error(err, "Cannot explain a placement", "path", r.URL.Path)
	}
	if status.Code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allowedMethods(r.URL.Path))
	}
	writeJSON(w, r, int(status.Code), errorResponse{Status: status, Error: status.Message})
}

func writeJSON(w http.ResponseWriter, r *http.Request, code int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(content); err != nil {
		log.FromContext(r.Context()).V(1).Info("Cannot write the answer: the connection is closed", "path", r.URL.Path, "error", err.Error())
	}
}

// allowedMethods returns the methods for a path.
func allowedMethods(path string) string {
	if path == report.Path {
		return http.MethodPost
	}
	return http.MethodGet
}
