package access

import (
	"net/url"
	"testing"
)

// CP-07, CG-02: a cluster sends clients, who have a credential for the hub, to itself and nowhere else.
func TestRedirect(t *testing.T) {
	t.Parallel()
	direct, tunnel := &url.URL{Scheme: "https", Host: "c1.example.com", Path: "/k8s"}, &url.URL{}
	for _, test := range []struct {
		location string
		endpoint *url.URL
		want     string
	}{
		{"/k8s/api/v1?a=b", direct, "/c1/proxy/api/v1?a=b"},
		{"https://c1.example.com/k8s/x", direct, "/c1/proxy/x"},
		{"/api/v1?a=b", tunnel, "/c1/proxy/api/v1?a=b"},
		{"below/", tunnel, "below/"},
		{"https://c1.example.com", direct, "/c1/proxy/"},
		{"https://c1.example.com/k8s", direct, "/c1/proxy"},
		{"/k8s-other/x", direct, "/c1/proxy/k8s-other/x"},
		{"https://elsewhere.example.com", direct, ""},
		{"https://elsewhere.example.com", tunnel, ""},
		{"//elsewhere.example.com/x", tunnel, ""},
		{"//", tunnel, ""},
		{"//@", tunnel, ""},
		{" //elsewhere.example.com/x", tunnel, ""},
		{"mailto:somebody", tunnel, ""},
		{"/../../api/v1", tunnel, ""},
		{"../../c2/proxy/api", tunnel, ""},
		{"%2e%2e/%2e%2e/c2", tunnel, ""},
		{`..\..\c2`, tunnel, ""},
		{`/a\..\..\c2`, tunnel, ""},
		{":", tunnel, ""},
	} {
		if got, err := Redirect(test.location, test.endpoint, "/c1/proxy"); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q %v, want %q", test.location, got, err, test.want)
		}
	}
}
