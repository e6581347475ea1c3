package clusterproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

// serviceCAFile has the CA that signs certificates of services, on clusters that give one to their pods.
const serviceCAFile = "/var/run/secrets/kubernetes.io/serviceaccount/service-ca.crt"

const (
	// idleConnections and idleTime are how many connections to a service are kept for later requests, and for how long.
	idleConnections = 8
	idleTime        = 90 * time.Second
)

// services are those of the managed cluster.
type services struct {
	managed *rest.Config
	rules   *rules
	// inCluster says that the agent runs in a pod of the managed cluster, where the names of its services are known.
	inCluster bool
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	transport *http.Transport
	// domain is below which the names of services are resolved; empty leaves that to the machine.
	domain atomic.Value
}

func newServices(managed *rest.Config, rules *rules, inCluster bool) *services {
	dialer := &net.Dialer{Timeout: connectTimeout, Control: refuseLocal}
	s := &services{managed: managed, rules: rules, inCluster: inCluster, dial: dialer.DialContext}
	s.setDomain("")
	s.transport = &http.Transport{
		DialContext:         s.connect,
		DialTLSContext:      s.dialTLS,
		MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTime,
		DisableCompression: true, // that is between the user and the service
	}
	return s
}

// setDomain has the names of services resolved below another domain from now on.
func (s *services) setDomain(domain string) {
	if before := s.domain.Swap(domain); before != nil && before != domain {
		s.transport.CloseIdleConnections()
	}
}

// connect connects to a service, by the name NAME.NAMESPACE.svc that its certificate has, too.
func (s *services) connect(ctx context.Context, network, address string) (net.Conn, error) {
	domain, _ := s.domain.Load().(string)
	if domain == "" {
		return s.dial(ctx, network, address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return s.dial(ctx, network, net.JoinHostPort(host+"."+domain, port))
}

// refuseLocal refuses addresses that no service has. Who may write a service of the cluster could have its name stand for them, and what
// listens there trusts the agent's own machine.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	ip := net.ParseIP(host)
	if ip == nil || ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return fmt.Errorf("its address %s is not one that a service of a cluster has", host)
	}
	return nil
}

// serve sends a request on to a service. It has no credential but the one that it brings for the service.
func (s *services) serve(w http.ResponseWriter, r *http.Request, service *access.Service, path, credential string) error {
	if !s.inCluster {
		return badGateway("service %s: the agent does not run in its cluster, where alone the names of services are known; "+
			"services are reached where the agent runs in a pod of the managed cluster, which it does unless it is hosted or a process beside it",
			service.Key())
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	to := service.URL()
	to.Path, to.RawPath, to.RawQuery = decoded, path, r.URL.RawQuery
	if credential != "" {
		r.Header.Set("Authorization", credential)
	}
	proxy := httputil.ReverseProxy{
		Transport: s.transport, FlushInterval: -1, BufferPool: &buffers,
		Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL, p.Out.Host = to, to.Host },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			writeError(w, orNotAllowed(r.Context(), unreached(service, err)))
		},
	}
	proxy.ServeHTTP(w, r)
	return nil
}

// unreached says why there is no answer of a service.
func unreached(service *access.Service, err error) error {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return badGateway("the cluster has no service %s: %v", service.Key(), err)
	case errors.As(err, &certificate):
		return badGateway("service %s is not trusted: %v; its certificate has to be one for %s that a CA of the cluster has signed, or one in key %s "+
			"of ConfigMap %s there", service.Key(), err, service.Host(), keyServiceCA, fleet.ConfigMapHubAccess)
	}
	return badGateway("the agent does not reach service %s: %v", service.Key(), err)
}

func badGateway(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadGateway, Reason: "BadGateway",
		Message: fmt.Sprintf(format, args...)}}
}

// dialTLS connects to a service whose certificate is verified.
func (s *services) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := s.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, &tls.Config{RootCAs: s.roots(), ServerName: host, MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// roots are the CAs that may sign certificates of services: those of the system, of the cluster, and what its owner names. Any of the files
// may be another by now.
func (s *services) roots() *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(s.managed.CAData)
	for _, file := range []string{s.managed.CAFile, serviceCAFile} {
		if content, err := os.ReadFile(file); err == nil {
			pool.AppendCertsFromPEM(content)
		}
	}
	pool.AppendCertsFromPEM(s.rules.serviceCA())
	return pool
}
