package forwardproxy_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// http:// hubs get no credential in clear text, whatever else the configuration says.
func TestCleartextIsRefused(t *testing.T) {
	t.Parallel()
	ca := rest.TLSClientConfig{CAData: []byte("ca")}
	for name, test := range map[string]struct {
		config                rest.Config
		withoutTLS, forbidden bool
	}{
		"https":                     {config: rest.Config{Host: "https://hub:6443", BearerToken: "t"}},
		"upper case":                {config: rest.Config{Host: "HTTPS://hub", BearerToken: "t"}},
		"no scheme, with a CA":      {config: rest.Config{Host: "hub:6443", BearerToken: "t", TLSClientConfig: ca}},
		"http without a credential": {config: rest.Config{Host: "http://localhost:8001"}, withoutTLS: true},
		"http with a token":         {config: rest.Config{Host: "http://hub", BearerToken: "t"}, withoutTLS: true, forbidden: true},
		"http with a token and a CA": {config: rest.Config{Host: "http://hub", BearerToken: "t", TLSClientConfig: ca},
			withoutTLS: true, forbidden: true},
		"no scheme, with a token": {config: rest.Config{Host: "hub:6443", BearerToken: "t"}, withoutTLS: true, forbidden: true},
		"http with a token in a file": {config: rest.Config{Host: "http://hub", BearerTokenFile: "f"}, withoutTLS: true,
			forbidden: true},
		"http with a password": {config: rest.Config{Host: "http://hub", Username: "u", Password: "p"}, withoutTLS: true,
			forbidden: true},
		"http with a program for the token": {config: rest.Config{Host: "http://hub", ExecProvider: &clientcmdapi.ExecConfig{}},
			withoutTLS: true, forbidden: true},
		"http with a certificate of the client": {config: rest.Config{Host: "http://hub",
			TLSClientConfig: rest.TLSClientConfig{CertData: []byte("c")}}, withoutTLS: true, forbidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(what string, err error, refused bool) {
				if (err != nil) != refused || refused && !strings.Contains(err.Error(), "https://") {
					t.Errorf("%s: %v, want a refusal: %t", what, err, refused)
				}
			}
			check("TLS", forwardproxy.CheckTLS(&test.config), test.withoutTLS)
			check("credential", forwardproxy.CheckCredential(&test.config), test.forbidden)
		})
	}
}
