package controlplane

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationuser "k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/apis/authentication"
	"k8s.io/kubernetes/pkg/registry/authentication/tokenreview"
)

// SC-15: the hosting cluster reviews tokens the hub does not know, has ten seconds to answer, and gets a review once in
// ten seconds. It knows whom its tokens are for: its API server may have another name for that than the hub.
func TestUsersOfTheHostingCluster(t *testing.T) {
	t.Parallel()
	reviewed := 0
	hosting := func(r *http.Request) (*http.Response, error) {
		reviewed++
		deadline, limited := r.Context().Deadline()
		if left := time.Until(deadline); !limited || left > 10*time.Second {
			t.Errorf("the hosting cluster has %s to answer, limited: %t", left, limited)
		}
		if question, err := io.ReadAll(r.Body); err != nil || bytes.Contains(question, []byte("audience")) {
			t.Errorf("the hosting cluster is asked %s, %v", question, err)
		}
		answer := httptest.NewRecorder()
		answer.Header().Set("Content-Type", "application/json")
		answer.WriteHeader(http.StatusCreated)
		_, err := answer.WriteString(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1",
			"status":{"authenticated":true,"audiences":["their API"],"user":{"username":"theirs"}}}`)
		return answer.Result(), err
	}
	ours := authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		known := r.Header.Get("Authorization") == "Bearer ours"
		return &authenticator.Response{User: &authenticationuser.DefaultInfo{Name: "ours"}}, known, nil
	})
	info := genericapiserver.AuthenticationInfo{APIAudiences: ofHub, Authenticator: ours}
	must(t, hostedBy(t, hosting).join(&info))
	for _, name := range []string{"ours", "theirs", "theirs"} {
		got, ok, err := authenticate(t, &info, name)
		if err != nil || !ok || got.User.GetName() != name {
			t.Fatalf("%s: %+v, %t, %v", name, got, ok, err)
		}
		if groups := strings.Join(got.User.GetGroups(), " "); name == "theirs" && groups != "system:authenticated" {
			t.Errorf("the user of the hosting cluster has the groups %q", groups)
		}
	}
	if reviewed != 1 {
		t.Errorf("the hosting cluster was asked %d times", reviewed)
	}
}

// SC-15: the hub reviews tokens of the hosting cluster, which are for its API alone, again and again with the same outcome.
func TestReviewOfTheirTokens(t *testing.T) {
	t.Parallel()
	info := genericapiserver.AuthenticationInfo{APIAudiences: ofHub, Authenticator: knowsNobody}
	must(t, reviewedAs(t, authenticationv1.UserInfo{Username: "theirs"}).join(&info))
	reviews := tokenreview.NewREST(info.Authenticator, info.APIAudiences)
	for name, test := range map[string]struct {
		asked []string
		want  []string
	}{
		"for no audience":             {want: ofHub},
		"for the hub":                 {asked: ofHub, want: ofHub},
		"for the hub and for others":  {asked: []string{"others", ofHub[0]}, want: ofHub},
		"for others":                  {asked: []string{"others"}},
		"for the API of their server": {asked: []string{"their API"}},
	} {
		for range 2 { // the second answer is from the cache
			answer, err := reviews.Create(t.Context(), &authentication.TokenReview{Spec: authentication.TokenReviewSpec{
				Token: "theirs", Audiences: test.asked}}, nil, &metav1.CreateOptions{})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			status := answer.(*authentication.TokenReview).Status
			if status.Authenticated != (test.want != nil) || !slices.Equal(status.Audiences, test.want) {
				t.Errorf("%s: %+v, want the audiences %q", name, status, test.want)
			}
		}
	}
}

// ofHub are the audiences of the hub.
var ofHub = authenticator.Audiences{"the API of the hub"}

// knowsNobody is a hub without users of its own.
var knowsNobody = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil })

// hostedBy are the users of a hosting cluster that answers reviews of tokens, and trusts no certificate.
func hostedBy(t *testing.T, answer roundTripper) *hostingUsers {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://hosting.test", Transport: answer})
	must(t, err)
	return &hostingUsers{reviews: client.AuthenticationV1(), clientCA: noCA{}}
}

// reviewedAs are the users of a hosting cluster that knows everybody as the same one.
func reviewedAs(t *testing.T, who authenticationv1.UserInfo) *hostingUsers {
	t.Helper()
	review, err := json.Marshal(authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Status:   authenticationv1.TokenReviewStatus{Authenticated: true, User: who},
	})
	must(t, err)
	return hostedBy(t, func(*http.Request) (*http.Response, error) {
		answer := httptest.NewRecorder()
		answer.Header().Set("Content-Type", "application/json")
		_, err := answer.Write(review)
		return answer.Result(), err
	})
}

type noCA struct {
	dynamiccertificates.CAContentProvider
}

func (noCA) VerifyOptions() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false }

func authenticate(t *testing.T, info *genericapiserver.AuthenticationInfo, token string) (*authenticator.Response, bool, error) {
	t.Helper()
	request := httptest.NewRequestWithContext(authenticator.WithAudiences(t.Context(), ofHub), http.MethodGet, "/", http.NoBody)
	request.Header.Set("Authorization", "Bearer "+token)
	return info.Authenticator.AuthenticateRequest(request)
}

// SC-15: names of the hosting cluster do not become identities of the hub: a tenant there who has the namespace open-cluster-management, or
// a certificate signed for a name, is not the user who has this name here.
func TestNamesOfTheHostingCluster(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ user, groups, wantUser, wantGroups string }{
		{"ann", "team", "ann", "team system:authenticated"},
		{"kube:admin", "system:cluster-admins", "kube:admin", "hosting-cluster:system:cluster-admins system:authenticated"},
		{"system:admin", "system:masters", "hosting-cluster:system:admin", "system:masters system:authenticated"},
		{"system:serviceaccount:open-cluster-management:agent-registration-bootstrap", "system:serviceaccounts system:authenticated",
			"hosting-cluster:system:serviceaccount:open-cluster-management:agent-registration-bootstrap",
			"hosting-cluster:system:serviceaccounts system:authenticated"},
		{"system:open-cluster-management:c1:agent", "system:open-cluster-management:c1 system:open-cluster-management:managed-clusters",
			"hosting-cluster:system:open-cluster-management:c1:agent",
			"hosting-cluster:system:open-cluster-management:c1 hosting-cluster:system:open-cluster-management:managed-clusters system:authenticated"},
		{"ann", "open-cluster-management:c1", "ann", "hosting-cluster:open-cluster-management:c1 system:authenticated"},
		{"system:bootstrap:abcdef", "system:bootstrappers:managedcluster", "hosting-cluster:system:bootstrap:abcdef",
			"hosting-cluster:system:bootstrappers:managedcluster system:authenticated"},
		{"hosting-cluster:system:admin", "", "hosting-cluster:hosting-cluster:system:admin", "system:authenticated"},
	} {
		t.Run(test.user, func(t *testing.T) {
			t.Parallel()
			who := authenticationv1.UserInfo{Username: test.user, Groups: strings.Fields(test.groups)}
			info := genericapiserver.AuthenticationInfo{APIAudiences: ofHub, Authenticator: knowsNobody}
			must(t, reviewedAs(t, who).join(&info))
			got, ok, err := authenticate(t, &info, "theirs")
			if err != nil || !ok {
				t.Fatalf("%t, %v", ok, err)
			}
			if groups := strings.Join(got.User.GetGroups(), " "); got.User.GetName() != test.wantUser || groups != test.wantGroups {
				t.Errorf("%q in %q, want %q in %q", got.User.GetName(), groups, test.wantUser, test.wantGroups)
			}
		})
	}
}

// roundTripper is a transport without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
