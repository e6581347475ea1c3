package access

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// CP-07, CG-02: a cluster sends clients, who have a credential for the hub, to itself and nowhere else.
func TestRedirect(t *testing.T) {
	t.Parallel()
	direct, tunnel := &url.URL{Scheme: "https", Host: "c1.example.com", Path: "/k8s"}, &url.URL{}
	requested := &url.URL{Path: "/api/v/1", RawPath: "/api/v%2F1", RawQuery: "limit=1"}
	for _, test := range []struct {
		location string
		endpoint *url.URL
		want     string
	}{
		{"/k8s/api/v1?a=b", direct, "/c1/proxy/api/v1?a=b"},
		{"https://c1.example.com/k8s/x", direct, "/c1/proxy/x"},
		{"/api/v1?a=b", tunnel, "/c1/proxy/api/v1?a=b"},
		{"/api/v1?a=b#c", tunnel, "/c1/proxy/api/v1?a=b#c"},
		{"below/", tunnel, "/c1/proxy/api/below/"},
		{"below/", direct, "/c1/proxy/api/below/"},
		{"k8s/x", direct, "/c1/proxy/api/k8s/x"},
		{"./", tunnel, "/c1/proxy/api/"},
		{".", tunnel, "/c1/proxy/api/"},
		{"a%2Fb", tunnel, "/c1/proxy/api/a%2Fb"},
		{"?a=b", tunnel, "/c1/proxy/api/v%2F1?a=b"},
		{"#a", tunnel, "/c1/proxy/api/v%2F1?limit=1#a"},
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
		if got, err := Redirect(test.location, requested, test.endpoint, "/c1/proxy"); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q %v, want %q", test.location, got, err, test.want)
		}
	}
}

// CP-07, CG-02: whether a client has ended the prefix with a slash or not, it stays below.
func TestRedirectFromPrefix(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		"c2/api/v1":   "/c1/c2/api/v1",
		"portforward": "/c1/portforward",
		"./":          "/c1/",
		"?a=b":        "/c1/?a=b",
	} {
		if got, err := Redirect(location, &url.URL{Path: "/"}, &url.URL{}, "/c1"); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", location, got, err, want)
		}
	}
}

// CP-07, CG-02: no Location is passed on as it is, also where there are several.
func TestRewriteLocation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		locations, want []string
	}{
		"none":               {nil, nil},
		"empty":              {[]string{""}, nil},
		"one":                {[]string{"a"}, []string{"/a"}},
		"several":            {[]string{"a", "https://example.com"}, []string{"/a"}},
		"several, one empty": {[]string{"", "https://example.com"}, nil},
	} {
		answer := &http.Response{StatusCode: http.StatusFound, Header: http.Header{}}
		for _, location := range test.locations {
			answer.Header.Add("Location", location)
		}
		err := RewriteLocation(answer, func(location string) (string, error) { return "/" + location, nil })
		if got := answer.Header.Values("Location"); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
}
