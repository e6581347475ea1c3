// Package debug is the endpoint at which a hub says why placements select what they do, and what unsaved ones would select.
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

// How long the answer to whether somebody may ask holds. Who is given the right waits less than who loses it.
const (
	allowedTTL = 10 * time.Second
	deniedTTL  = 2 * time.Second
)

// Explainer tells why a placement selects what it does. It need not be saved.
type Explainer interface {
	Explain(ctx context.Context, placement *clusterv1beta1.Placement) (*scheduler.Explanation, error)
}

// Endpoint answers GET NAMESPACE/NAME and POST below report.Path. Its zero value is ready to serve; until it is opened, it
// asks clients to come back. The server has authenticated who asks, and put them into the context of the request.
type Endpoint struct{ open atomic.Pointer[server] }

// server answers the requests of an open endpoint.
type server struct {
	api        client.Client
	authorizer authorizer.Authorizer
	explainer  Explainer
}

// Open begins to answer: with Placements of the API, which checks unsaved ones, too, to those whom the reviews let, and with
// what the explainer says of them.
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

// errorResponse is a Status as every API server writes it, and the field in which readers of reports look for errors.
type errorResponse struct {
	metav1.Status `json:",inline"`
	Error         string `json:"error"`
}

// WriteError answers with an error, as every API server would.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Code == http.StatusInternalServerError {
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
		log.FromContext(r.Context()).V(1).Info("Nobody waits for the answer", "path", r.URL.Path, "error", err.Error())
	}
}

// allowedMethods are the methods for a path.
func allowedMethods(path string) string {
	if path == report.Path {
		return http.MethodPost
	}
	return http.MethodGet
}
