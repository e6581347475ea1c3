package clusterproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// shown is a tunnel with the name in the certificate that it was made with.
type shown struct {
	*tunnel.Tunnel
	name string
}

// startHubOfCertificates starts a hub that takes the tunnels of agents with certificates.
func startHubOfCertificates(t *testing.T) (*rest.Config, <-chan shown) {
	t.Helper()
	made := make(chan shown, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		accepted, err := tunnel.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		made <- shown{accepted, r.TLS.PeerCertificates[0].DNSNames[0]}
		<-accepted.Done()
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	folder := t.TempDir()
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(server),
		CertFile: filepath.Join(folder, "tls.crt"), KeyFile: filepath.Join(folder, "tls.key")}}, made
}

// renew has the files of a configuration hold a new certificate, with a name.
func renew(t *testing.T, config *rest.Config, name string) {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(file string, content []byte) error {
		return errors.Join(os.WriteFile(file+".next", content, 0o600), os.Rename(file+".next", file))
	}
	if err := errors.Join(replace(config.KeyFile, key), replace(config.CertFile, chain)); err != nil {
		t.Fatal(err)
	}
}

// keep opens a stream through which a request is answered, and another one may come. Like a transport of the hub, awaitEnd closes it once
// the agent has.
func keep(t *testing.T, hub *tunnel.Tunnel) (awaitEnd func()) {
	t.Helper()
	stream, err := hub.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(stream, "GET / HTTP/1.1\r\nHost: c1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(stream)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || response.Close {
		t.Fatalf("the stream ends with the answer: %v", err)
	}
	return func() {
		if left, err := reader.ReadByte(); err == nil {
			t.Errorf("a stream that waits for a request goes on, with %q", left)
		}
		_ = stream.Close()
	}
}

// awaitRetired waits until the hub knows that it may open no more streams in a tunnel.
func awaitRetired(t *testing.T, hub *tunnel.Tunnel, clk *clocktesting.FakeClock) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		clk.Step(retireInterval)
		stream, err := hub.Open()
		if err == nil {
			return false, stream.Close()
		}
		return errors.Is(err, tunnel.ErrRetired), nil
	})
	if err != nil {
		t.Fatalf("the hub may open streams in the tunnel of before: %v", err)
	}
}

// CP-10: when the certificate of the agent is renewed, there is another tunnel with the new one, and what is open goes on through the one
// before, until that or the certificate of then ends. Nothing more begins there.
func TestCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*clocktesting.FakeClock, net.Conn){
		"what is open ends":    func(_ *clocktesting.FakeClock, open net.Conn) { _ = open.Close() },
		"the certificate ends": func(clk *clocktesting.FakeClock, _ net.Conn) { clk.Step(2 * 365 * 24 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, made := startHubOfCertificates(t)
			renew(t, config, "first")
			clk := clocktesting.NewFakeClock(time.Now())
			startLink(t, config, clk)
			first := <-made
			open, err := first.Open()
			if err != nil {
				t.Fatal(err)
			}
			reader, code := handshakeOver(t, open, "alice")
			if line, err := reader.ReadString('\n'); code != http.StatusSwitchingProtocols || err != nil {
				t.Fatalf("%d %q %v", code, line, err)
			}
			awaitEnd := keep(t, first.Tunnel)
			renew(t, config, "second")
			second := <-made
			if first.name != "first" || second.name != "second" {
				t.Errorf("the tunnels are of the certificates %s and %s", first.name, second.name)
			}
			awaitRetired(t, first.Tunnel, clk)
			awaitEnd()
			expectEcho(t, open, reader)
			end(clk, open)
			err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
				clk.Step(retireInterval)
				return !isOpen(first.Tunnel), nil
			})
			if err != nil || !isOpen(second.Tunnel) {
				t.Errorf("the first tunnel goes on: %v; the second does: %t", err, isOpen(second.Tunnel))
			}
		})
	}
}
