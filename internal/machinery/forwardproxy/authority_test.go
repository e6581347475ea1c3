package forwardproxy_test

import (
	"bytes"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxytest"
)

// "The proxy's CA is not the hub's": who has it, and is on the way, does not answer as the hub.
func TestAuthorityOfProxyIsNotTheHubs(t *testing.T) {
	t.Parallel()
	impostor := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "impostor") }))
	t.Cleanup(impostor.Close)
	proxy := proxytest.Start(t, true, nil, map[string]string{"hub.invalid:6443": impostor.Listener.Addr().String()})
	other, _, err := cert.GenerateSelfSignedCertKey("hub", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	bundle := append(bytes.Clone(other), forwardproxy.ForProxy(proxy.CA())...)
	// The test's servers have one certificate, which stands for one that the CA of the proxy has signed for the hub's name.
	cluster := clientcmdapi.Cluster{Server: "https://hub.invalid:6443", TLSServerName: "example.com", ProxyURL: proxy.URL,
		CertificateAuthorityData: bundle}
	if _, err := get(t, configOf(t, cluster)); err == nil || !strings.Contains(err.Error(), "unknown authority") ||
		strings.Contains(err.Error(), "proxy") {
		t.Errorf("error %v, want one about the hub", err)
	}
	if proxy.Connections() == 0 {
		t.Error("the proxy is not verified with its own")
	}
	cluster.CertificateAuthorityData = forwardproxy.ForBoth(bundle)
	if body, err := get(t, configOf(t, cluster)); err != nil || body != "impostor" {
		t.Errorf("without the mark: %q, %v", body, err)
	}
}

// A bundle keeps its certificates, whatever is marked and unmarked; nothing else in it changes.
func TestMarks(t *testing.T) {
	t.Parallel()
	hub, _, err := cert.GenerateSelfSignedCertKey("hub", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	proxy, _, err := cert.GenerateSelfSignedCertKey("proxy", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	marked := forwardproxy.ForProxy(proxy)
	if x509.NewCertPool().AppendCertsFromPEM(marked) {
		t.Error("the certificates of the proxy are trusted for everything")
	}
	bundle := append(bytes.Clone(hub), marked...)
	if got := forwardproxy.ForBoth(bundle); !bytes.Equal(got, append(bytes.Clone(hub), proxy...)) {
		t.Errorf("without marks:\n%s", got)
	}
	if got := forwardproxy.OfProxy(bundle); !bytes.Equal(got, marked) || forwardproxy.OfProxy(hub) != nil {
		t.Errorf("of the proxy:\n%s", got)
	}
	for _, bundle := range [][]byte{nil, []byte("no PEM")} {
		if got := forwardproxy.ForBoth(bundle); !bytes.Equal(got, bundle) {
			t.Errorf("%q becomes %q", bundle, got)
		}
	}
}
