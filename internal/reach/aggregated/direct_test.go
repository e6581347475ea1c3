package aggregated

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/reach/token"
)

// handled answers the requests of a client without a network.
type handled struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// CP-09: the API server puts why it does not take a token into the status of a review that succeeds. Only where no key of its own and no
// issuer that it trusts may have signed the token, that is known to be none of the hub, and remembered; else it is soon asked again.
func TestTokensOfTheHub(t *testing.T) {
	t.Parallel()
	good := authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "alice"}}
	refused := func(why string) authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{Error: why}
	}
	for name, test := range map[string]struct {
		status   authenticationv1.TokenReviewStatus
		doubtful bool
	}{
		"of a user":                    {status: good},
		"of nobody":                    {status: refused("invalid bearer token")},
		"refused without a reason":     {status: refused("")},
		"signed with another key":      {status: refused("invalid signature, no keys found")},
		"refused by a webhook, too":    {status: refused("[invalid signature, no keys found, unknown]")},
		"refused by that of OpenShift": {status: refused("[invalid bearer token, token lookup failed]")},
		"refused by another webhook":   {status: refused("[invalid bearer token, nobody here]"), doubtful: true},
		"before the issuer is known":   {status: refused("oidc: authenticator not initialized"), doubtful: true},
		"while the issuer is away":     {status: refused("oidc: verify token: failed to verify signature: fetching keys oidc"), doubtful: true},
		"for another client":           {status: refused(`oidc: verify token: oidc: expected audience "a" got ["b"]`), doubtful: true},
		"whose pod is not found":       {status: refused("service account token has been invalidated"), doubtful: true},
		"whose account cannot be read": {status: refused("etcdserver: request timed out"), doubtful: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reviews := 0
				hub := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					reviews++
					review := authenticationv1.TokenReview{}
					if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Spec.Token != "sent" {
						t.Errorf("the token %q is reviewed: %v", review.Spec.Token, err)
					}
					review.Status = test.status
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusCreated)
					_ = json.NewEncoder(w).Encode(review)
				})
				o := NewOptions()
				asJSON := rest.ContentConfig{ContentType: "application/json"}
				tokens, err := o.tokens(&rest.Config{Host: "http://hub", ContentConfig: asJSON, Transport: handled{hub}})
				if err != nil {
					t.Fatal(err)
				}
				for asked, after := range []time.Duration{0, 0, errorTTL + time.Millisecond} {
					<-time.After(after)
					answer, known, err := tokens.AuthenticateToken(t.Context(), "sent")
					if errors.Is(err, token.ErrDoubtful) != test.doubtful || !test.doubtful && err != nil ||
						known != test.status.Authenticated || known && answer.User.GetName() != "alice" {
						t.Errorf("%v, %t, %v", answer, known, err)
					}
					if again := asked == 2 && test.doubtful; (reviews == 2) != again {
						t.Errorf("asked %d times, the API server is %d times", asked+1, reviews)
					}
				}
			})
		})
	}
}
