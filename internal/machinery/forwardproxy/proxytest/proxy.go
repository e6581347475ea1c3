// Package proxytest has a forward proxy for tests: HTTP CONNECT, with a password and over TLS if wanted.
package proxytest

import (
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
)

// Proxy connects clients that send CONNECT, and the right password, to where its routes say.
type Proxy struct {
	*httptest.Server
	// user, if not nil, is who may connect.
	user *url.Userinfo
	// routes are the addresses by which the proxy knows others, and what these are.
	routes map[string]string

	mu sync.Mutex
	// answer, if not 0, is the status with which all requests are refused.
	answer int
	// granted is the header before a tunnel.
	granted string
	tunnels map[net.Conn]bool
	made    int
}

// Start starts a proxy for as long as the test runs. It knows the hosts of the routes alone, by their keys, and lets in
// only the user, unless that is nil. With TLS it talks HTTP/2 to clients that offer it, as many proxies do.
func Start(t testing.TB, secure bool, user *url.Userinfo, routes map[string]string) *Proxy {
	t.Helper()
	p := &Proxy{user: user, routes: routes, tunnels: map[net.Conn]bool{}, granted: "HTTP/1.1 200 Connection established\r\n\r\n"}
	p.Server = httptest.NewUnstartedServer(p)
	p.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it are expected
	if secure {
		p.EnableHTTP2 = true
		p.StartTLS()
	} else {
		p.Start()
	}
	t.Cleanup(func() {
		p.Cut()
		p.Close()
	})
	return p
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	answer := p.answer
	p.mu.Unlock()
	switch {
	case r.Method != http.MethodConnect || r.ProtoMajor != 1:
		http.Error(w, "CONNECT under HTTP/1.1 is all there is", http.StatusMethodNotAllowed)
		return
	case p.user != nil && r.Header.Get("Proxy-Authorization") != basicAuth(p.user):
		http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		return
	case answer != 0:
		http.Error(w, "not today", answer)
		return
	case p.routes[r.Host] == "":
		http.Error(w, "no such host", http.StatusBadGateway)
		return
	}
	target, err := net.Dial("tcp", p.routes[r.Host])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		_ = target.Close()
		return
	}
	p.join(client, target, buffered.Reader)
}

func basicAuth(user *url.Userinfo) string {
	password, _ := user.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
}

func (p *Proxy) join(client, target net.Conn, fromClient io.Reader) {
	p.mu.Lock()
	p.tunnels[client] = true
	p.made++
	granted := p.granted
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.tunnels, client)
		p.mu.Unlock()
		_, _ = client.Close(), target.Close()
	}()
	if _, err := io.WriteString(client, granted); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(target, fromClient)
		_ = target.Close()
	}()
	_, _ = io.Copy(client, target)
}

// Cut breaks all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.tunnels {
		_ = conn.Close()
	}
}

// Refuse answers all requests with a status from now on; 0 ends that.
func (p *Proxy) Refuse(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = status
}

// Grant starts every tunnel with this header from now on.
func (p *Proxy) Grant(header string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted = header
}

// Connections is how many there were so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// URLFor is what goes into proxy-url.
func (p *Proxy) URLFor(user *url.Userinfo) string {
	u, err := url.Parse(p.URL)
	if err != nil {
		panic(err) // it is httptest's
	}
	u.User = user
	return u.String()
}

// CA is what an HTTPS proxy is verified with.
func (p *Proxy) CA() []byte {
	if p.TLS == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
}
