package userserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
)

// authenticate has a hub that answers with err, or knows alice, authenticate a request.
func authenticate(t *testing.T, path, authorization string, err error) (user.Info, http.Header, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	r.Header.Set(fleet.HeaderClusterAuthorization, "Bearer of-somebody")
	r.Header.Set("Authorization", authorization)
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString()}
	info, infoErr := infos.NewRequestInfo(r)
	if infoErr != nil {
		t.Fatal(infoErr)
	}
	r = r.WithContext(request.WithRequestInfo(r.Context(), info))
	hub := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		if err != nil {
			return nil, false, err
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: "alice"}}, true, nil
	})
	answer, known, err := ClusterTokens{Version: api.Standalone}.Authenticator(hub).AuthenticateRequest(r)
	if !known {
		return nil, r.Header, err
	}
	return answer.User, r.Header, err
}

// CP-12: at the API of a hub, a token of a service account that the hub does not know is left to the cluster, and no other is.
func TestClusterTokensAreLeftToTheCluster(t *testing.T) {
	t.Parallel()
	const proxy = "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1/proxy/api/v1/pods"
	unknown := utilerrors.NewAggregate([]error{errors.New("invalid signature, no keys found"), errors.New("invalid bearer token")})
	who, header, err := authenticate(t, proxy, "Bearer "+ofCluster, unknown)
	if err != nil || who == nil || who.GetName() != user.Anonymous || header.Get(fleet.HeaderClusterAuthorization) != "Bearer "+ofCluster {
		t.Errorf("the token of a cluster: %v, %v, %v", who, header, err)
	}
	if decision, _, _ := decide(who, "", "managedclusters", "proxy"); decision != authorizer.DecisionAllow {
		t.Error("it may not ask the cluster")
	}
	for _, other := range []struct{ namespace, resource, subresource string }{
		{"", "managedclusters", ""}, {"", "managedclusters", "portforward"}, {"", "managedclusters", "stream"}, {"", "manifestworks", "proxy"},
		{"c1", "managedclusters", "proxy"}} {
		if decision, _, _ := decide(who, other.namespace, other.resource, other.subresource); decision != authorizer.DecisionNoOpinion {
			t.Errorf("it may ask for %+v", other)
		}
	}
	nobody := &user.DefaultInfo{Name: user.Anonymous}
	if decision, _, _ := decide(nobody, "", "managedclusters", "proxy"); decision != authorizer.DecisionNoOpinion {
		t.Error("nobody at all may ask the cluster")
	}
	if who, header, err = authenticate(t, proxy, "Bearer "+ofHub, nil); err != nil || who.GetName() != "alice" ||
		header.Get(fleet.HeaderClusterAuthorization) != "Bearer of-somebody" {
		t.Errorf("a user of the hub: %v, %v, %v", who, header, err)
	}
	unanswered := &url.Error{Op: "Post", URL: "https://hosting", Err: errors.New("refused")}
	for what, test := range map[string]struct {
		path, authorization string
		err                 error
	}{
		"elsewhere":          {"/apis/cluster.open-cluster-management.io/v1/managedclusters/c1", "Bearer " + ofCluster, unknown},
		"of another group":   {"/apis/reach.capstan.io/v1alpha1/managedclusters/c1/proxy/api", "Bearer " + ofCluster, unknown},
		"in a namespace":     {strings.Replace(proxy, "/v1/", "/v1/namespaces/c1/", 1), "Bearer " + ofCluster, unknown},
		"opaque":             {proxy, "Bearer opaque", unknown},
		"basic":              {proxy, "Basic " + ofCluster, unknown},
		"nothing":            {proxy, "", unknown},
		"no answer":          {proxy, "Bearer " + ofCluster, utilerrors.NewAggregate([]error{errors.New("invalid"), unanswered})},
		"no answer, nested":  {proxy, "Bearer " + ofCluster, utilerrors.NewAggregate([]error{utilerrors.NewAggregate([]error{unanswered})})},
		"no answer in time":  {proxy, "Bearer " + ofCluster, context.DeadlineExceeded},
		"a pod not found":    {proxy, "Bearer " + ofHub, errors.New("service account token has been invalidated")},
		"too many questions": {proxy, "Bearer " + ofCluster, apierrors.NewTooManyRequests("later", 1)},
	} {
		if who, header, err := authenticate(t, test.path, test.authorization, test.err); err == nil || who != nil ||
			header.Get(fleet.HeaderClusterAuthorization) != "Bearer of-somebody" {
			t.Errorf("%s: %v, %v, %v", what, who, header, err)
		}
	}
}

func decide(who user.Info, namespace, resource, subresource string) (authorizer.Decision, string, error) {
	return ClusterTokens{Version: api.Standalone}.Authorize(context.Background(), authorizer.AttributesRecord{User: who, Verb: "get",
		Namespace: namespace, APIGroup: api.Standalone.Group, APIVersion: api.Standalone.Version, Resource: resource, Subresource: subresource,
		Name: "c1", ResourceRequest: true})
}
