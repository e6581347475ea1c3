package access_test

import (
	"cmp"
	"net/url"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/reach/access"
)

// Whatever the path, it leads to no host but that of a service, and to nothing outside of the path that was checked.
func FuzzServiceOf(f *testing.F) {
	for _, path := range []string{inDefault + "web:8443/proxy-service/a%2Fb", inDefault + "http:web/proxy-service", "/api/v1/nodes", "//a/.."} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.Parse(path)
		if err != nil {
			return
		}
		service, rest, err := access.ServiceOf(u)
		if err != nil || service == nil {
			return
		}
		target := service.URL()
		reached, err := url.Parse(target.String() + rest)
		if err != nil || reached.Host != target.Host || !strings.HasSuffix(reached.Hostname(), ".svc") || reached.User != nil {
			t.Errorf("%q leads to %v, %v", path, reached, err)
		}
	})
}

// Wherever a cluster redirects a client to, the client stays on the hub, and there below the path of the cluster.
func FuzzRedirect(f *testing.F) {
	for _, location := range []string{"/api", "api/v1?limit=1", "https://cluster.example/base/api", "//evil.example/", `/\evil.example`, "/base/../.."} {
		f.Add(location, "/base")
		f.Add(location, "")
	}
	const prefix = "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1/proxy"
	f.Fuzz(func(t *testing.T, location, base string) {
		endpoint, err := url.Parse("https://cluster.example" + base)
		if err != nil || endpoint.Host != "cluster.example" || base != "" && base[0] != '/' {
			return
		}
		for _, path := range []string{"", "/", "/api/v1/pods"} {
			requested := &url.URL{Path: cmp.Or(path, "/")}
			to, err := access.Redirect(location, requested, endpoint, prefix)
			if err != nil {
				return
			}
			hub, err := url.Parse("https://hub.example" + prefix + path)
			if err != nil {
				t.Fatal(err)
			}
			seen, err := hub.Parse(asBrowser(to))
			if err != nil {
				return // no client follows it
			}
			if seen.Host != hub.Host || seen.Scheme != hub.Scheme || seen.Path != prefix && !strings.HasPrefix(seen.Path, prefix+"/") {
				t.Errorf("from %q, %q sends a client to %q, which is %s", path, location, to, seen)
			}
		}
	})
}

// asBrowser is how a browser reads a location.
func asBrowser(location string) string {
	location = strings.TrimFunc(location, func(r rune) bool { return r <= ' ' })
	path, query, _ := strings.Cut(location, "?")
	return strings.ReplaceAll(path, `\`, "/") + "?" + query
}
