package clustermanager

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
)

// CM-29: the components of a hosted hub reach it, wherever it is.
func TestPortsOf(t *testing.T) {
	t.Parallel()
	proxy := http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example.com:3128"})
	for _, test := range []struct {
		access rest.Config
		want   []int32
	}{
		{rest.Config{Host: "https://hub.example.com:30443"}, []int32{30443}},
		{rest.Config{Host: "https://hub.example.com"}, []int32{443}},
		{rest.Config{Host: "https://hub.example.com:6443", Proxy: proxy}, []int32{6443, 3128}},
	} {
		if got := portsOf(&test.access); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v", test.access.Host, got)
		}
	}
}
