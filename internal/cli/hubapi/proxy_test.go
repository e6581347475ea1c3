package hubapi_test

import (
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxytest"
)

// through returns a hub that its kubeconfig says is behind a proxy.
func through(t *testing.T, fake *fakehub.Hub, proxyURL string, ca []byte) *hubapi.Hub {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	fake.Kubeconfig(t, file, "hub")
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	known := config.Clusters["hub"]
	known.Server, known.TLSServerName, known.ProxyURL = "https://hub.invalid:6443", "example.com", proxyURL
	known.CertificateAuthorityData = append(known.CertificateAuthorityData, ca...)
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	hub, err := hubapi.Connect(hubapi.Target{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	return hub
}

// RG-10: commands go by the proxy of a kubeconfig, of whatever kind it is.
func TestThroughProxy(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	fake.Put(t, clustersPath+"/cluster1", managedCluster("cluster1", true))
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := url.UserPassword("me", "s3cr3t")
			proxy := proxytest.Start(t, secure, user, map[string]string{"hub.invalid:6443": strings.TrimPrefix(fake.URL, "https://")})
			proxy.Grant("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			clusters, err := managedclusters.List(t.Context(), through(t, fake, proxy.URLFor(user), proxy.CA()), "")
			if err != nil || len(clusters.Items) != 1 || proxy.Connections() == 0 {
				t.Errorf("%v after %d connections: %v", clusters, proxy.Connections(), err)
			}
		})
	}
}

// RG-10: when the proxy fails, that is what a command says, and not that the hub is.
func TestProxyInTheWay(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	closed := proxytest.Start(t, false, url.UserPassword("me", "right"), nil)
	forbidding := proxytest.Start(t, false, nil, nil)
	forbidding.Refuse(http.StatusForbidden)
	gone := proxytest.Start(t, false, nil, nil)
	gone.Close()
	for name, test := range map[string]struct {
		proxyURL string
		says     []string
	}{
		"no password":    {closed.URL, []string{closed.URL, "407 Proxy Authentication Required", "put a user and a password into proxy-url"}},
		"wrong password": {closed.URLFor(url.UserPassword("me", "wr0ng")), []string{closed.URL, "correct them"}},
		"forbidden":      {forbidding.URL, []string{forbidding.URL, "403 Forbidden", "allow CONNECT"}},
		"gone":           {gone.URL, []string{"reach the proxy " + gone.URL, "connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := managedclusters.List(t.Context(), through(t, fake, test.proxyURL, nil), "")
			mention(t, err, append(test.says, "list clusters", "leads through this proxy", `check proxy-url in context "hub"`)...)
			if strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("the password is in %q", err)
			}
		})
	}
}

// CA-10: a server is verified on the way by which its hub is reached. Where the proxy does not lead, nothing is known about it.
func TestVerifyAtThroughProxy(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	routes := map[string]string{}
	for _, host := range []string{"hub.invalid", "hub.example.com"} {
		routes[host+":6443"] = strings.TrimPrefix(fake.URL, "https://")
	}
	plain, secure := proxytest.Start(t, false, nil, routes), proxytest.Start(t, true, nil, routes)
	for name, test := range map[string]struct {
		proxy   *proxytest.Proxy
		proxyCA []byte
		server  string
		ca      []byte
		fails   string
		never   bool // wherever it is tried
	}{
		"a name of the certificate": {proxy: plain, server: "https://hub.example.com:6443", ca: fake.CA()},
		"by a secure proxy":         {proxy: secure, proxyCA: secure.CA(), server: "https://hub.example.com:6443", ca: fake.CA()},
		"another name":              {plain, nil, "https://hub.invalid:6443", fake.CA(), "not for hub.invalid, but for example.com", true},
		"no authority":              {plain, nil, "https://hub.example.com:6443", nil, "unknown authority", true},
		"no way":                    {plain, nil, "https://elsewhere.invalid:6443", fake.CA(), "cannot connect to elsewhere.invalid", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := through(t, fake, test.proxy.URL, test.proxyCA).VerifyAt(t.Context(), test.server, test.ca)
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("error %v, want %q", err, test.fails)
			}
			if errors.Is(err, hubapi.ErrUntrusted) != test.never {
				t.Errorf("%v is ErrUntrusted: %t", err, !test.never)
			}
		})
	}
}
