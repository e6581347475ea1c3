package access_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/capstan-io/capstan/internal/reach/access"
)

// CP-09: what names somebody in a request from outside never comes through.
func TestStrip(t *testing.T) {
	t.Parallel()
	header := http.Header{
		"Authorization": {"Bearer x"}, "Impersonate-User": {"admin"}, "impersonate-group": {"system:masters"}, "Impersonate-Extra-A": {"b"},
		"X-Remote-User": {"admin"}, "x-remote-group": {"system:masters"}, "X-Remote-Extra-Scopes": {"all"}, "X-Remote-Uid": {"0"},
		"Cookie": {"session=1"}, "Proxy-Authorization": {"Basic x"}, "Accept": {"application/json"},
		"X-Remote-Service": {"http://web.default.svc"}, "Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.c2VjcmV0"},
	}
	access.User{Name: "alice", Groups: []string{"ops", "system:authenticated"}}.Write(header)
	user, err := access.Read(header)
	if err != nil || user.Name != "alice" || !slices.Equal(user.Groups, []string{"ops", "system:authenticated"}) || len(header) != 3 {
		t.Errorf("%+v %v %v", user, err, header)
	}
	on := user.OnCluster()
	if on.Name != "cluster:hub:alice" || !slices.Equal(on.Groups, []string{"cluster:hub:ops"}) {
		t.Errorf("on the cluster: %+v", on)
	}
	access.Strip(header)
	on.Impersonate(header)
	if header.Get("Impersonate-User") != on.Name || !slices.Equal(header.Values("Impersonate-Group"), on.Groups) || len(header) != 3 {
		t.Errorf("%v", header)
	}
}

// CP-07: a request for an upgrade is known by what API servers know it by.
func TestIsUpgrade(t *testing.T) {
	t.Parallel()
	webSocket := []string{"websocket"}
	for name, test := range map[string]struct {
		header http.Header
		want   bool
	}{
		"WebSocket":                  {http.Header{"Connection": {"Upgrade"}, "Upgrade": webSocket}, true},
		"SPDY":                       {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}, true},
		"in other letters":           {http.Header{"Connection": {"uPGRADE"}, "Upgrade": webSocket}, true},
		"of several options":         {http.Header{"Connection": {"keep-alive,Upgrade "}, "Upgrade": webSocket}, true},
		"in a second header":         {http.Header{"Connection": {"keep-alive", "Upgrade"}, "Upgrade": webSocket}, true},
		"to what a second one names": {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"", "websocket"}}, true},
		"to nothing, as of a proxy":  {http.Header{"Connection": {"upgrade"}}, false},
		"to an empty protocol":       {http.Header{"Connection": {"upgrade"}, "Upgrade": {""}}, false},
		"not to be upgraded":         {http.Header{"Connection": {"keep-alive"}, "Upgrade": webSocket}, false},
		"none":                       {http.Header{}, false},
	} {
		if got := access.IsUpgrade(test.header); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// CP-09: who would be somebody else in the headers of a request is refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]bool{
		"alice": true, "system:serviceaccount:a:b": true, "Alice of Ops": true, "ålice": true,
		"alice ": false, " alice": false, "\talice": false, "alice\n": false, "al\r\nImpersonate-Group: a": false, "al\x00ice": false,
		"alice\u00a0": false,
	} {
		for _, user := range []access.User{{Name: name}, {Name: "bob", Groups: []string{"ops", name}}} {
			if err := user.Check(); (err == nil) != is {
				t.Errorf("%+q: %v", user, err)
			}
		}
	}
}

func TestNobody(t *testing.T) {
	t.Parallel()
	for _, header := range []http.Header{{}, {access.HeaderUser: {""}}} {
		if user, err := access.Read(header); err == nil {
			t.Errorf("%v is of %+v", header, user)
		}
	}
	for name, want := range map[string]bool{"system:anonymous": true, "alice": false} {
		if user, err := access.Read(http.Header{access.HeaderUser: {name}}); err != nil || user.Anonymous() != want {
			t.Errorf("%s: %+v %v", name, user, err)
		}
	}
}

// CP-09
func TestRules(t *testing.T) {
	t.Parallel()
	alice := access.User{Name: "alice", Groups: []string{"ops"}}
	request := access.Request{Verb: "get", Namespace: "team"}
	for name, test := range map[string]struct {
		rules access.Rules
		want  bool
	}{
		"none":              {nil, false},
		"empty rule":        {access.Rules{{}}, true},
		"user":              {access.Rules{{Users: []string{"alice"}}}, true},
		"other user":        {access.Rules{{Users: []string{"bob"}}}, false},
		"group":             {access.Rules{{Groups: []string{"ops"}}}, true},
		"user or group":     {access.Rules{{Users: []string{"bob"}, Groups: []string{"ops"}}}, true},
		"name on cluster":   {access.Rules{{Users: []string{"cluster:hub:alice"}}}, false},
		"verb":              {access.Rules{{Verbs: []string{"list", "get"}}}, true},
		"other verb":        {access.Rules{{Verbs: []string{"list"}}}, false},
		"any verb":          {access.Rules{{Verbs: []string{"*"}}}, true},
		"namespace":         {access.Rules{{Namespaces: []string{"team"}}}, true},
		"other namespace":   {access.Rules{{Namespaces: []string{"other"}}}, false},
		"all have to match": {access.Rules{{Users: []string{"alice"}, Verbs: []string{"list"}}}, false},
		"one of several":    {access.Rules{{Verbs: []string{"list"}}, {Users: []string{"alice"}}}, true},
	} {
		if got := test.rules.Allow(alice, request); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	inNamespace := access.Rules{{Namespaces: []string{"team"}}}
	if inNamespace.Allow(alice, access.Request{Verb: "list"}) {
		t.Error("a rule for a namespace allows requests to none")
	}
}

// CP-09
func TestRulesFor(t *testing.T) {
	t.Parallel()
	alice := access.User{Name: "alice", Groups: []string{"ops"}}
	for want, rules := range map[string]access.Rules{
		"": {{Users: []string{"bob"}}},
		"narrows get, list in web; any verb in a, b": {
			{Users: []string{"alice"}, Verbs: []string{"get", "list"}, Namespaces: []string{"web"}}, {Groups: []string{"dev"}},
			{Groups: []string{"ops"}, Namespaces: []string{"a", "b"}}},
		"get; any verb": {{Verbs: []string{"get"}}, {Groups: []string{"ops"}}},
		"narrows get":   {{Verbs: []string{"get"}}},
		"*":             {{Verbs: []string{"*"}}},
	} {
		found := rules.For(alice)
		got := found.String()
		if len(found) > 0 && found.Narrows() {
			got = "narrows " + got
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/": true, "/api/v1/pods": true, "/api/v1/namespaces/a/services/https:b:c/proxy/x..y": true, "/a//b": true, "/...": true,
		"/..": false, "/../x": false, "/api/../../x": false, "/./x": false, "/x/.": false, "/x\\..\\y": false, "/x\x00": false,
	} {
		if err := access.CheckPath(path); (err == nil) != want {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// CP-09: a token that a WebSocket client sends as a protocol is left out, and the others stay.
func TestStripProtocols(t *testing.T) {
	t.Parallel()
	header := http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.c2VjcmV0, a", "b"}}
	access.Strip(header)
	if got := header.Values("Sec-Websocket-Protocol"); !slices.Equal(got, []string{"a,b"}) {
		t.Errorf("offered are %q", got)
	}
}
