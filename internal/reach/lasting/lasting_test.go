package lasting_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/capstan-io/capstan/internal/reach/lasting"
)

// webSocket are the headers of a WebSocket handshake, as kubectl sends it to execute something in a pod.
var webSocket = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
	"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}}

func about(resource, subresource, verb string) *request.RequestInfo {
	return &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: "g", Resource: resource, Subresource: subresource, Name: "c1"}
}

// CP-07 CG-02: who may only read does not get a shell, whatever the handshake of it is.
func TestUpgradesAreCreated(t *testing.T) {
	t.Parallel()
	spdy := http.Header{"Connection": {"keep-alive, upgrade"}, "Upgrade": {"SPDY/3.1"}}
	for name, test := range map[string]struct {
		about  *request.RequestInfo
		header http.Header
		may    []string
		want   int
	}{
		"WebSocket to read":                   {about("managedclusters", "proxy", "get"), webSocket, []string{"get"}, 403},
		"WebSocket through a gateway to read": {about("clustergateways", "proxy", "get"), webSocket, []string{"get"}, 403},
		"WebSocket":                           {about("managedclusters", "proxy", "get"), webSocket, []string{"get", "create"}, 200},
		"WebSocket through a gateway":         {about("clustergateways", "proxy", "get"), webSocket, []string{"get", "create"}, 200},
		"WebSocket, and the hub cannot say":   {about("managedclusters", "proxy", "get"), webSocket, nil, 500},
		"SPDY to read":                        {about("managedclusters", "proxy", "get"), spdy, []string{"get"}, 403},
		"SPDY to update":                      {about("managedclusters", "proxy", "update"), spdy, []string{"update"}, 403},
		"SPDY":                                {about("managedclusters", "proxy", "create"), spdy, []string{"create"}, 200},
		"no upgrade":                          {about("managedclusters", "proxy", "get"), http.Header{}, []string{"get"}, 200},
		"watch of the hub by WebSocket":       {about("managedclusters", "", "watch"), webSocket, []string{"watch"}, 200},
	} {
		rights := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			switch {
			case test.may == nil:
				return authorizer.DecisionNoOpinion, "", errors.New("no answer")
			case a.GetName() == "c1" && a.GetSubresource() == "proxy" && slices.Contains(test.may, a.GetVerb()):
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "not in this test", nil
		})
		handler := lasting.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), rights, scheme.Codecs)
		ctx := request.WithUser(request.WithRequestInfo(t.Context(), test.about), &user.DefaultInfo{Name: "alice"})
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		r.Header = test.header.Clone()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if text := w.Body.String(); w.Code != test.want || test.want == 403 && !strings.Contains(text, "cannot create resource") {
			t.Errorf("%s: %d %s", name, w.Code, text)
		}
	}
}

// Who answers a request that is soon over may name its rights all the same.
func TestFollow(t *testing.T) {
	t.Parallel()
	var followed []string
	ctx := lasting.WithFollower(t.Context(), func(a authorizer.Attributes) { followed = append(followed, a.GetVerb()) })
	lasting.Follow(ctx, authorizer.AttributesRecord{Verb: "list"})
	lasting.Follow(t.Context(), authorizer.AttributesRecord{Verb: "get"})
	if !slices.Equal(followed, []string{"list"}) {
		t.Errorf("followed are %v", followed)
	}
}
