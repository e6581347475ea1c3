package forwardproxy_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// speak starts a proxy that answers every request with a given text, chunk by chunk, and then keeps the connection open.
// Behind an answer it sends back what it gets.
func speak(t *testing.T, secure bool, chunks ...string) forwardproxy.Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	proxy := forwardproxy.Proxy{URL: &url.URL{Scheme: "http", Host: listener.Addr().String()}}
	if secure {
		server := httptest.NewTLSServer(nil) // for its certificate
		t.Cleanup(server.Close)
		proxy.URL.Scheme, proxy.Trust = "https", rest.TLSClientConfig{CAData: pemOf(server.Certificate())}
		listener = tls.NewListener(listener, &tls.Config{Certificates: server.TLS.Certificates})
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go answer(conn, chunks)
		}
	}()
	return proxy
}

func answer(conn net.Conn, chunks []string) {
	reader := bufio.NewReader(conn)
	if _, err := http.ReadRequest(reader); err != nil {
		return
	}
	for _, chunk := range chunks {
		if chunk == hangUp {
			_ = conn.Close()
			return
		}
		if _, err := io.WriteString(conn, chunk); err != nil {
			return
		}
	}
	_, _ = io.Copy(conn, reader)
}

// hangUp is for a proxy that goes away.
const hangUp = "\x00"

// RG-10: what a proxy may say to grant a tunnel, and where the tunnel starts.
func TestGranted(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 Connection established\r\n"
	for name, test := range map[string]struct {
		says  []string
		early string // what of the tunnel comes before anything was sent
	}{
		"plain":                            {says: []string{ok + "\r\n"}},
		"chunked":                          {says: []string{ok + "Transfer-Encoding: chunked\r\n\r\n"}},
		"an encoding that is not known":    {says: []string{ok + "Transfer-Encoding: gzip\r\n\r\n"}},
		"a length":                         {says: []string{ok + "Content-Length: 100\r\n\r\n"}},
		"two lengths":                      {says: []string{ok + "Content-Length: 1\r\nContent-Length: none\r\n\r\n"}},
		"to be closed":                     {says: []string{ok + "Connection: close\r\nProxy-Agent: tinyproxy\r\n\r\n"}},
		"HTTP/1.0":                         {says: []string{"HTTP/1.0 200 OK\r\n\r\n"}},
		"no reason":                        {says: []string{"HTTP/1.1 200\r\n\r\n"}},
		"another success":                  {says: []string{"HTTP/1.1 204 No Content\r\n\r\n"}},
		"after an interim answer":          {says: []string{"HTTP/1.1 100 Continue\r\n\r\n", ok + "\r\n"}},
		"letter by letter":                 {says: strings.Split(ok+"Via: 1.1 proxy\r\n\r\n", "")},
		"with bytes of the tunnel":         {says: []string{ok + "\r\nhello"}, early: "hello"},
		"with bytes that look like chunks": {says: []string{ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "more"}, early: "0\r\n\r\nmore"},
	} {
		for scheme, secure := range map[string]bool{"http": false, "https": true} {
			t.Run(scheme+"/"+name, func(t *testing.T) {
				t.Parallel()
				conn, err := speak(t, secure, test.says...).DialContext(t.Context(), "tcp", "hub.invalid:6443")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := io.WriteString(conn, "ping"); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(test.early)+len("ping"))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != test.early+"ping" {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
	}
}

// RG-10: a proxy that refuses, or is none, is named at once with what to do, also when it keeps the connection open.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		says []string
		user *url.Userinfo
		want []string
	}{
		"who asks": {[]string{
			"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"x\"\r\nTransfer-Encoding: chunked\r\n\r\n"}, nil,
			[]string{"407 Proxy Authentication Required", "put a user and a password into proxy-url"}},
		"who asks, wrongly": {[]string{
			"HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 5000\r\n\r\n<html>"},
			url.UserPassword("me", "s3cr3t"), []string{"407 No", "correct them"}},
		"who asks, otherwise": {[]string{"HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM\r\n\r\n"},
			url.UserPassword("me", "s3cr3t"), []string{"by Negotiate, NTLM", "(Basic)"}},
		"forbidden": {[]string{"HTTP/1.1 403 Filtered\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"}, nil,
			[]string{"403 Filtered", "has to allow CONNECT"}},
		"does not reach it": {[]string{"HTTP/1.1 503 Service Unavailable\r\n\r\n"}, nil, []string{"cannot connect to hub.invalid:6443 (503"}},
		"breaks down": {[]string{"HTTP/1.0 500 Unable to connect\r\n\r\n"}, nil,
			[]string{"cannot connect to hub.invalid:6443 (500 Unable to connect)"}},
		"is a server with TLS": {[]string{"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"}, nil,
			[]string{"begin with https://"}},
		"moved":            {[]string{"HTTP/1.1 302 Found\r\nLocation: https://login.invalid\r\n\r\n"}, nil, []string{"302 Found"}},
		"speaks otherwise": {[]string{"SSH-2.0-OpenSSH_9.2\r\n"}, nil, []string{"SSH-2.0", "see whether proxy-url names an HTTP proxy"}},
		"goes away":        {[]string{hangUp}, nil, []string{"closed the connection"}},
		"goes away, later": {[]string{"HTTP/1.1 200 OK\r\nVia: ", hangUp}, nil, []string{"closed the connection"}},
		"speaks on and on": {slices.Repeat([]string{"HTTP/1.1 100 Continue\r\n\r\n"}, 5000), nil, []string{"more than 65536 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := speak(t, false, test.says...)
			proxy.URL.User = test.user
			_, err := proxy.DialContext(t.Context(), "tcp", "hub.invalid:6443")
			var refused *forwardproxy.Error
			if !errors.As(err, &refused) {
				t.Fatalf("error %v", err)
			}
			for _, text := range append(test.want, "the proxy http://"+proxy.URL.Host) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not hold %q", err, text)
				}
			}
			if strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("the password is in %q", err)
			}
		})
	}
}

func pemOf(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}
