// Package forwardproxy connects to a hub through an HTTP or HTTPS proxy.
//
// net/http can do that, too, but it takes an HTTPS proxy for the hub: it verifies it under the hub's tls-server-name, offers
// it HTTP/2, which cannot carry what it says next, and shows it the client certificate. And of a proxy that refuses it says
// "Forbidden", which reads as if the hub had said it. A dialer that speaks TLS to the proxy, below net/http's own CONNECT, would leave the
// latter as it is: the answer of the proxy gets only to Transport.OnProxyConnectResponse, for which client-go's rest.Config has no place.
package forwardproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// connectTimeout is how long a connection may take, the proxy's own to the hub included. Users who wait are to learn soon what is
	// wrong; proxies themselves wait for a minute and more.
	connectTimeout = 10 * time.Second
	// keepAlive is how often a silent connection is tried.
	keepAlive = 30 * time.Second
	// maxAnswer bounds, in bytes, what is read of a proxy's answer.
	maxAnswer = 64 << 10
)

// Proxy is an HTTP or HTTPS proxy that makes connections by CONNECT.
type Proxy struct {
	// URL is that of the proxy, with the user and the password if it wants them.
	URL *url.URL
	// Trust is what an HTTPS proxy is verified with: CAData or CAFile, or nothing for the system's certificates; or Insecure.
	Trust rest.TLSClientConfig
}

// Use makes the clients of a configuration go through the proxy that it names, if that is an HTTP or HTTPS one. An HTTPS
// proxy is verified with the certificate authorities of the configuration, those that are for proxies alone included (see ForProxy). The
// configuration is changed.
func Use(config *rest.Config) error {
	if config.Proxy == nil {
		return nil
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	proxy, err := config.Proxy(&http.Request{URL: server})
	if err != nil {
		return fmt.Errorf("proxy-url: %w", err)
	}
	if proxy == nil || (proxy.Scheme != "http" && proxy.Scheme != "https") {
		return nil
	}
	Proxy{URL: proxy, Trust: config.TLSClientConfig}.Carry(config)
	return nil
}

// Carry makes the clients of a configuration go through the proxy, whatever proxy the configuration or the environment names.
func (p Proxy) Carry(config *rest.Config) {
	config.Dial = p.DialContext
	config.Proxy = None
}

// None is the Proxy of a configuration whose clients connect without one, whatever the environment names.
func None(*http.Request) (*url.URL, error) { return nil, nil }

// Error says why a connection through a proxy fails, and what to do about it.
type Error struct{ cause error }

func (e *Error) Error() string { return e.cause.Error() }

func (e *Error) Unwrap() error { return e.cause }

// DialContext connects to an address, which need mean nothing to this machine. It fails with an *Error.
func (p Proxy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.dial(ctx, network, address)
	if err != nil {
		return nil, &Error{err}
	}
	return conn, nil
}

func (p Proxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errNoAnswer)
	defer cancel()
	conn, err := p.reach(ctx, network)
	if err != nil {
		return nil, fmt.Errorf("reach the proxy %s: %w", p.name(), err)
	}
	// Reading and writing know no context.
	interrupted := context.AfterFunc(ctx, func() { _ = conn.Close() })
	tunnel, err := p.connect(conn, address)
	if !interrupted() {
		_ = conn.Close()
		return nil, fmt.Errorf("wait for the proxy %s to connect to %s: %w", p.name(), address, context.Cause(ctx))
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return tunnel, nil
}

// errNoAnswer is a timeout, as a context has it.
var errNoAnswer = fmt.Errorf("it has not answered for %s; see whether it is an HTTP proxy, whether that is the hub's address as the proxy knows it, "+
	"and whether the hub runs: %w", connectTimeout, context.DeadlineExceeded)

// name is the URL without what is secret about it.
func (p Proxy) name() string { return p.URL.Scheme + "://" + p.URL.Host }

func (p Proxy) reach(ctx context.Context, network string) (net.Conn, error) {
	port := p.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[p.URL.Scheme]
	}
	dialer := &net.Dialer{KeepAlive: keepAlive}
	conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(p.URL.Hostname(), port))
	if err != nil || p.URL.Scheme == "http" {
		return conn, err
	}
	config, err := p.tlsConfig()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, explainTLS(err)
	}
	return secured, nil
}

func (p Proxy) tlsConfig() (*tls.Config, error) {
	bundle := p.Trust.CAData
	if len(bundle) == 0 && p.Trust.CAFile != "" {
		var err error
		if bundle, err = os.ReadFile(p.Trust.CAFile); err != nil {
			return nil, fmt.Errorf("read the certificate authority of the proxy: %w", err)
		}
	}
	return rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		ServerName: p.URL.Hostname(), Insecure: p.Trust.Insecure, CAData: ForBoth(bundle),
	}})
}

// explainTLS adds what to do about a certificate that was not accepted.
func explainTLS(err error) error {
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) {
		return fmt.Errorf("%w; the certificate authority of the proxy has to be in certificate-authority-data of the kubeconfig, where "+
			"\"capstan join --proxy-ca-file\" adds it for the proxy alone", err)
	}
	return err
}

// connect requests a tunnel from the proxy.
func (p Proxy) connect(conn net.Conn, address string) (net.Conn, error) {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user := p.URL.User; user != nil {
		password, _ := user.Password()
		request.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := request.Write(conn); err != nil {
		return nil, fmt.Errorf("ask the proxy %s: %w", p.name(), err)
	}
	limited := &io.LimitedReader{R: conn, N: maxAnswer}
	reader := bufio.NewReader(limited)
	answer, err := readAnswer(reader)
	switch {
	case err != nil && limited.N == 0:
		return nil, fmt.Errorf("the proxy %s answers with a header of more than %d bytes; see whether it is an HTTP proxy", p.name(), maxAnswer)
	case err != nil:
		return nil, fmt.Errorf("read the answer of the proxy %s: %w", p.name(), err)
	case !answer.success():
		return nil, p.refusal(answer, address)
	}
	return behindAnswer(conn, reader)
}

// refusal distinguishes a proxy that does not want to from one that cannot.
func (p Proxy) refusal(a *answer, address string) error {
	switch a.code {
	case http.StatusProxyAuthRequired:
		if schemes := a.otherSchemes(); schemes != "" {
			return fmt.Errorf("the proxy %s wants to know who asks by %s (%s); let it take a user and a password (Basic), which proxy-url holds",
				p.name(), schemes, a.status)
		}
		if p.URL.User != nil {
			return fmt.Errorf("the proxy %s does not accept the user and the password in proxy-url (%s); correct them there", p.name(), a.status)
		}
		return fmt.Errorf("the proxy %s wants to know who asks (%s); put a user and a password into proxy-url, as in %s://USER:PASSWORD@%s",
			p.name(), a.status, p.URL.Scheme, p.URL.Host)
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("the proxy %s cannot connect to %s (%s); see whether that is the hub's address as the proxy knows it, and whether the hub runs",
			p.name(), address, a.status)
	case http.StatusBadRequest:
		return fmt.Errorf("the proxy %s does not understand the request to connect to %s (%s); see whether proxy-url has to begin with https://, and "+
			"whether it is an HTTP proxy",
			p.name(), address, a.status)
	default:
		return fmt.Errorf("the proxy %s refuses to connect to %s (%s); it has to allow CONNECT to that host and port", p.name(), address,
			a.status)
	}
}
