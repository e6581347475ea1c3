package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/pkg/apis/clientauthentication"
	"k8s.io/client-go/plugin/pkg/client/auth/exec"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/reach/gateway/clustersecret"
)

const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	keepAlive        = 30 * time.Second
	// pingAfter is how long a connection with requests on it may be silent before it is tried, and pingTimeout how long it then has.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// connections are how requests get to clusters.
type connections struct {
	tunnel       Tunnel
	execCommands []string

	mu sync.Mutex
	// sites are where the clusters are, by their names.
	sites map[string]*site
}

// site is where a cluster is. What is in flight to it ends with it, through whichever version of the Secret it was started: credentials are
// renewed all the time, and the API server of a cluster does not end streams for that either.
type site struct {
	endpoint string
	// ctx ends when what is in flight is not to go on, with the reason as its cause.
	ctx context.Context
	cut context.CancelCauseFunc
	// current is for the version of the Secret that was used last; nil if that is another by now.
	current *connection
}

// connection is how requests get to a cluster with one version of its Secret.
type connection struct {
	*site
	version string
	cluster *clustersecret.Cluster
	// problem is what is wrong with the Secret; then there is nothing else.
	problem error

	// requests and upgrades differ in that HTTP/2 cannot carry the latter.
	requests, upgrades http.RoundTripper
	closeIdle          func()
}

func newConnections(tunnel Tunnel, execCommands []string) *connections {
	return &connections{tunnel: tunnel, execCommands: execCommands, sites: map[string]*site{}}
}

var (
	errSecretDeleted   = errors.New("the Secret of the cluster was deleted")
	errEndpointChanged = errors.New("the Secret of the cluster has another endpoint now")
	errStopping        = errors.New("the gateway is stopping")
)

// to returns the connection for a Secret.
func (c *connections) to(secret *corev1.Secret) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveUp(secret)
	at := c.sites[secret.Name]
	if at == nil {
		at = &site{endpoint: clustersecret.EndpointHash(secret)}
		at.ctx, at.cut = context.WithCancelCause(context.Background())
		c.sites[secret.Name] = at
	}
	if at.current == nil {
		at.current = c.open(at, secret)
	}
	return at.current
}

// changed gives up what is for another version of a Secret.
func (c *connections) changed(secret *corev1.Secret) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveUp(secret)
}

func (c *connections) giveUp(secret *corev1.Secret) {
	at := c.sites[secret.Name]
	switch {
	case at == nil:
	case at.endpoint != clustersecret.EndpointHash(secret):
		c.end(secret.Name, errEndpointChanged)
	case at.current != nil && at.current.version != clustersecret.Version(secret):
		at.current.closeIdle()
		at.current = nil
	}
}

// gone cuts what is in flight to a cluster without a Secret.
func (c *connections) gone(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(name, errSecretDeleted)
}

func (c *connections) end(name string, why error) {
	at := c.sites[name]
	if at == nil {
		return
	}
	delete(c.sites, name)
	at.cut(why)
	if at.current != nil {
		at.current.closeIdle()
	}
}

func (c *connections) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.sites {
		c.end(name, errStopping)
	}
}

// open makes the connection that a Secret describes. Nothing is dialled yet.
func (c *connections) open(at *site, secret *corev1.Secret) *connection {
	made := &connection{site: at, version: clustersecret.Version(secret), closeIdle: func() {}}
	made.cluster, made.problem = clustersecret.Parse(secret)
	if made.problem == nil {
		if err := c.build(made); err != nil {
			made.problem = &clustersecret.ProblemError{Secret: secret.Namespace + "/" + secret.Name, Problems: err}
		}
	}
	return made
}

func (c *connections) build(made *connection) error {
	config, err := c.credentials(made.cluster)
	if err != nil {
		return err
	}
	tlsConfig, err := transport.TLSConfigFor(config)
	if err != nil {
		return fmt.Errorf("configure TLS for cluster %s: %w", made.cluster.Name, err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	dial := config.DialHolder.Dial
	requests, upgrades := newTransport(tlsConfig, dial), newTransport(tlsConfig, dial)
	// Through a tunnel there is no proxy, and in an HTTP proxy's case dialling has to do with it already.
	switch proxy := made.cluster.Proxy; {
	case made.cluster.Tunnel:
	case proxy == nil:
		requests.Proxy, upgrades.Proxy = http.ProxyFromEnvironment, http.ProxyFromEnvironment
	case proxy.Scheme == "socks5":
		requests.Proxy, upgrades.Proxy = http.ProxyURL(proxy), http.ProxyURL(proxy)
	}
	requests.ForceAttemptHTTP2 = true
	requests.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	upgrades.Protocols = new(http.Protocols)
	upgrades.Protocols.SetHTTP1(true)
	if made.requests, err = transport.HTTPWrappersForConfig(config, requests); err != nil {
		return err
	}
	if made.upgrades, err = transport.HTTPWrappersForConfig(config, upgrades); err != nil {
		return err
	}
	made.closeIdle = func() { requests.CloseIdleConnections(); upgrades.CloseIdleConnections() }
	return nil
}

// newTransport has no limit for how long an answer takes: a watch or the log of a pod may say nothing for hours.
func newTransport(config *tls.Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		TLSClientConfig: config.Clone(), TLSHandshakeTimeout: handshakeTimeout, DialContext: dial,
		IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 25,
		DisableCompression: true, // what clients request is what they get
	}
}

// credentials are the part of a transport that shows who the hub is and makes sure of who the cluster is.
func (c *connections) credentials(cluster *clustersecret.Cluster) (*transport.Config, error) {
	config := &transport.Config{
		BearerToken: cluster.Token,
		TLS: transport.TLSConfig{
			ServerName: cluster.ServerName, CAData: cluster.CA, Insecure: cluster.Insecure() && !cluster.Tunnel,
			CertData: cluster.Certificate, KeyData: cluster.PrivateKey,
		},
		DialHolder: &transport.DialHolder{Dial: c.dialer(cluster)},
	}
	if cluster.Exec == nil {
		return config, nil
	}
	if !slices.Contains(c.execCommands, cluster.Exec.Command) {
		return nil, fmt.Errorf("key exec names the command %q, which may not run on the hub; start the hub with --gateway-exec-commands to let it",
			cluster.Exec.Command)
	}
	var about *clientauthentication.Cluster
	if cluster.Exec.ProvideClusterInfo {
		about = &clientauthentication.Cluster{Server: cluster.Endpoint.String(), TLSServerName: cluster.ServerName,
			InsecureSkipTLSVerify: config.TLS.Insecure, CertificateAuthorityData: cluster.CA}
	}
	authenticator, err := exec.GetAuthenticator(cluster.Exec, about)
	if err != nil {
		return nil, fmt.Errorf("key exec: %w", err)
	}
	if err := authenticator.UpdateTransportConfig(config); err != nil {
		return nil, fmt.Errorf("key exec: %w", err)
	}
	return config, nil
}

// tunnelError is that the cluster cannot be reached through the tunnel.
type tunnelError struct{ error }

func (e *tunnelError) Unwrap() error { return e.error }

var errNoTunnels = errors.New("this hub serves no tunnels")

func (c *connections) dialer(cluster *clustersecret.Cluster) func(ctx context.Context, network, address string) (net.Conn, error) {
	switch {
	case cluster.Tunnel:
		return func(ctx context.Context, _, address string) (net.Conn, error) {
			if c.tunnel == nil {
				return nil, &tunnelError{errNoTunnels}
			}
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			conn, err := c.tunnel.DialCluster(ctx, cluster.Name, address)
			if err != nil {
				return nil, &tunnelError{err}
			}
			return conn, nil
		}
	case cluster.Proxy != nil && cluster.Proxy.Scheme != "socks5":
		return forwardproxy.Proxy{URL: cluster.Proxy, Trust: clientrest.TLSClientConfig{CAData: cluster.CA}}.DialContext
	default:
		return (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
}

// handler keeps connections up to date with the Secrets, and has clusters probed whose Secrets change.
func (g *Gateway) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if secret, ok := object.(*corev1.Secret); ok {
				g.connections.changed(secret)
				g.probes.now(secret.Name)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok := before.(*corev1.Secret)
			secret, too := after.(*corev1.Secret)
			if ok && too && clustersecret.Version(old) != clustersecret.Version(secret) {
				g.connections.changed(secret)
				g.probes.now(secret.Name)
			}
		},
		DeleteFunc: func(last any) {
			if unknown, ok := last.(cache.DeletedFinalStateUnknown); ok {
				last = unknown.Obj
			}
			if secret, ok := last.(*corev1.Secret); ok {
				g.connections.gone(secret.Name)
				forgetRequests(secret.Name)
			}
		},
	}
}
