package controlplane

import (
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Requests without an end are not cut off, those to aggregated APIs included.
func TestLongRunning(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		verb, subresource string
		want              bool
	}{
		{"list", "", false}, {"get", "status", false}, {"watch", "", true}, {"get", "proxy", true},
		{"get", "log", true}, {"create", "exec", true}, {"create", "attach", true}, {"create", "portforward", true},
	} {
		info := &request.RequestInfo{IsResourceRequest: true, Verb: test.verb, Subresource: test.subresource}
		if got := longRunning(&http.Request{}, info); got != test.want {
			t.Errorf("%s of %q: %t, want %t", test.verb, test.subresource, got, test.want)
		}
	}
}
