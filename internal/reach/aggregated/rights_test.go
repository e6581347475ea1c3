package aggregated

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// CP-07 CG-02: a request that goes on ends when its user has lost the right to it, and not while nobody can say so; one that is over at
// once is not checked again.
func TestWhileAuthorized(t *testing.T) {
	t.Parallel()
	const untilAnswer, untilLost = time.Hour, time.Minute
	for name, test := range map[string]struct {
		verb, subresource string
		decision          authorizer.Decision
		err               error
		want              time.Duration
	}{
		"watch, right lost":          {"watch", "", authorizer.DecisionNoOpinion, nil, untilLost},
		"proxy, right denied":        {"create", "proxy", authorizer.DecisionDeny, nil, untilLost},
		"proxy, right there":         {"get", "proxy", authorizer.DecisionAllow, nil, untilAnswer},
		"proxy, API server away":     {"get", "proxy", authorizer.DecisionNoOpinion, errors.New("connection refused"), untilAnswer},
		"forwarded port, right lost": {"create", "portforward", authorizer.DecisionNoOpinion, nil, untilLost},
		"tunnel of an agent":         {"create", "attach", authorizer.DecisionDeny, nil, untilAnswer},
		"list, which is soon over":   {"list", "", authorizer.DecisionDeny, nil, untilAnswer},
		"verb proxy, without rights": {"proxy", "", authorizer.DecisionDeny, nil, untilLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				rights := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
					if time.Since(began) < untilLost {
						return authorizer.DecisionAllow, "", nil
					}
					return test.decision, "", test.err
				})
				handler := whileAuthorized(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					select {
					case <-r.Context().Done():
					case <-time.After(untilAnswer):
					}
				}), rights)
				ctx := request.WithUser(request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: test.verb,
					Subresource: test.subresource, APIGroup: "proxy.capstan.io", Resource: "managedclusters", Name: "c1"}),
					&user.DefaultInfo{Name: "alice"})
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
				if took := time.Since(began); took != test.want {
					t.Errorf("the request has ended after %s, want %s", took, test.want)
				}
			})
		})
	}
}
