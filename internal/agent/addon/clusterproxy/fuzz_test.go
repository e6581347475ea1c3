package clusterproxy

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-io/capstan/internal/reach/access"
)

// Whatever a user sends as a review, the API server gets the same.
func FuzzReadReview(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get"}}}`))
	f.Add([]byte(`{"kind":"SelfSubjectRulesReview","spec":{"namespace":"default"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, pathAccessReview, bytes.NewReader(content))
		if _, err := readReview(r); err != nil {
			if len(content) <= maxReview {
				t.Errorf("a review of %d bytes is refused: %v", len(content), err)
			}
			return
		}
		if passed, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(passed, content) {
			t.Errorf("%q became %q: %v", content, passed, err)
		}
	})
}

// Whatever a ConfigMap has as rules, nobody is let in whom no rule is about.
func FuzzParseRules(f *testing.F) {
	f.Add("[]")
	f.Add("[{}]")
	f.Add("- {users: [alice], verbs: [get, '*']}\n- {groups: [admins], namespaces: [shop]}\n")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := parseRules(&corev1.ConfigMap{Data: map[string]string{keyRules: text}})
		if err != nil {
			return
		}
		for _, user := range []access.User{{}, {Name: "alice"}, {Name: "bob", Groups: []string{"admins"}}} {
			allowed := rules.Allow(user, access.Request{Verb: "get", Namespace: "shop"}) || rules.Allow(user, access.Request{Verb: "list"})
			if about := rules.For(user); allowed && len(about) == 0 {
				t.Errorf("%q lets %+v in, whom it is not about", text, user)
			}
		}
	})
}
