package controlplane

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationuser "k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// SC-15: the hosting cluster is asked about tokens the hub does not know, has ten seconds to answer, and is asked once in
// ten seconds.
func TestAlsoReviewedBy(t *testing.T) {
	t.Parallel()
	asked := 0
	hosting := func(r *http.Request) (*http.Response, error) {
		asked++
		deadline, limited := r.Context().Deadline()
		if left := time.Until(deadline); !limited || left > 10*time.Second {
			t.Errorf("the hosting cluster has %s to answer, limited: %t", left, limited)
		}
		answer := httptest.NewRecorder()
		answer.Header().Set("Content-Type", "application/json")
		answer.WriteHeader(http.StatusCreated)
		_, err := answer.WriteString(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"theirs"}}}`)
		return answer.Result(), err
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://hosting.test", Transport: roundTripper(hosting)})
	must(t, err)
	info := genericapiserver.AuthenticationInfo{Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		known := r.Header.Get("Authorization") == "Bearer ours"
		return &authenticator.Response{User: &authenticationuser.DefaultInfo{Name: "ours"}}, known, nil
	})}
	must(t, alsoReviewedBy(client.AuthenticationV1(), &info))
	for _, name := range []string{"ours", "theirs", "theirs"} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		request.Header.Set("Authorization", "Bearer "+name)
		got, ok, err := info.Authenticator.AuthenticateRequest(request)
		if err != nil || !ok || got.User.GetName() != name {
			t.Fatalf("%s: %+v, %t, %v", name, got, ok, err)
		}
		if groups := strings.Join(got.User.GetGroups(), " "); name == "theirs" && groups != "system:authenticated" {
			t.Errorf("the user of the hosting cluster has the groups %q", groups)
		}
	}
	if asked != 1 {
		t.Errorf("the hosting cluster was asked %d times", asked)
	}
}

// roundTripper is a transport without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
