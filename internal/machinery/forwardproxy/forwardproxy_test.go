package forwardproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxytest"
)

// configOf is what clients make of a kubeconfig with a proxy-url.
func configOf(t *testing.T, cluster clientcmdapi.Cluster) *rest.Config {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["hub"] = &cluster
	kubeconfig.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub"}
	kubeconfig.CurrentContext = "hub"
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// get sends the hub a request as the configuration says.
func get(t *testing.T, config *rest.Config) (string, error) {
	t.Helper()
	if err := forwardproxy.Use(config); err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), nil
}

// RG-10: both kinds of proxies lead to a hub that is known under another name, and the hub is talked to under HTTP/2.
func TestUse(t *testing.T) {
	t.Parallel()
	hub := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	hub.EnableHTTP2 = true
	hub.StartTLS()
	t.Cleanup(hub.Close)
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := url.UserPassword("me", "p@ss:word")
			proxy := proxytest.Start(t, secure, user, map[string]string{"hub.invalid:6443": hub.Listener.Addr().String()})
			// The test's servers have one certificate for all, which is for 127.0.0.1, the proxy, and example.com, the hub.
			cluster := clientcmdapi.Cluster{Server: "https://hub.invalid:6443", TLSServerName: "example.com", ProxyURL: proxy.URLFor(user),
				CertificateAuthorityData: proxy.CA()}
			if !secure {
				cluster.CertificateAuthorityData = proxytest.Start(t, true, nil, nil).CA()
			}
			if body, err := get(t, configOf(t, cluster)); err != nil || body != "HTTP/2.0" {
				t.Errorf("got %q, error %v", body, err)
			}
		})
	}
}

// RG-10: what is not for an HTTP proxy is left to client-go.
func TestUseLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	for _, proxyURL := range []string{"", "socks5://127.0.0.1:1080"} {
		config := configOf(t, clientcmdapi.Cluster{Server: "https://hub.invalid:6443", ProxyURL: proxyURL})
		if err := forwardproxy.Use(config); err != nil || config.Dial != nil {
			t.Errorf("proxy-url %q: dials itself: %t, error %v", proxyURL, config.Dial != nil, err)
		}
	}
}

// RG-10: a connection through a proxy that says nothing, or nonsense, fails in time.
func TestSilentProxy(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	proxy := forwardproxy.Proxy{URL: &url.URL{Scheme: "http", Host: silent.Addr().String()}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := silent.Accept(); err == nil {
			cancel() // it is connected, and will receive nothing
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	if _, err := proxy.DialContext(ctx, "tcp", "hub.invalid:6443"); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), silent.Addr().String()) {
		t.Errorf("error %v", err)
	}
}
