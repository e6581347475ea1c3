// Package secureserving serves the health and the metrics of a program over HTTPS, as the controllers and agents of Open Cluster Management
// do: kubelets probe /healthz there without a credential, and Prometheus reads /metrics with one.
package secureserving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

const (
	// Flag is the name of the flag with the address, as in Open Cluster Management.
	Flag = "listen"
	// None is the address at which nothing is served.
	None = "0"
)

// Timeouts of connections.
const (
	headerTimeout   = 10 * time.Second
	idleTimeout     = 90 * time.Second
	shutdownTimeout = time.Second
)

// Options configure the server.
type Options struct {
	// Address to listen at, as host:port. It must not be None.
	Address string
	// Health are the checks behind /healthz and /livez, Ready those behind /readyz, by their names. They are answered to anonymous clients.
	Health, Ready map[string]healthz.Checker
	// API reviews the tokens of those who read /metrics, and whether they may.
	API *rest.Config
	// TLS sets versions and cipher suites; nil keeps the defaults.
	TLS func(*tls.Config)
}

// AddFlag adds --listen.
func AddFlag(flags *pflag.FlagSet, address *string) {
	flags.StringVar(address, Flag, *address, "Address at which /healthz, /livez and /readyz are served over HTTPS, and /metrics to those whom the API "+
		"lets get it; "+
		None+" serves none. The certificate is self-signed.")
}

// AddHealth has a manager serve that the process is alive, at the address of its own and over HTTPS at the other one, unless that is None.
// It is ready if these checks say so, too. bounds are those of TLS.
func AddHealth(to manager.Manager, address string, bounds func(*tls.Config), checks map[string]healthz.Checker) error {
	alive := map[string]healthz.Checker{"ping": healthz.Ping}
	ready := maps.Clone(alive)
	maps.Copy(ready, checks)
	if err := to.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	for name, check := range ready {
		if err := to.AddReadyzCheck(name, check); err != nil {
			return err
		}
	}
	if address == None {
		return nil
	}
	server, err := New(Options{Address: address, Health: alive, Ready: ready, API: to.GetConfig(), TLS: bounds})
	if err != nil {
		return err
	}
	return to.Add(server)
}

// New listens at the address. The server serves once it is started, on all replicas and not only on the leader.
func New(o Options) (*manager.Server, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		o.TLS(config)
	}
	certificate, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("make a serving certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{*certificate}
	handler, err := newHandler(o)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w; choose another, or %s for none", Flag, o.Address, err, None)
	}
	return &manager.Server{
		Name:            Flag,
		Server:          &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout},
		Listener:        tls.NewListener(listener, config),
		ShutdownTimeout: ptr.To(shutdownTimeout),
	}, nil
}

func newHandler(o Options) (http.Handler, error) {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": o.Health, "/livez": o.Health, "/readyz": o.Ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	readers, err := newReviewer(o.API)
	if err != nil {
		return nil, err
	}
	mux.Handle("/metrics", readers.guard(promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})))
	return mux, nil
}

// lifetime is that of the certificate. It has no use beyond that of the process, and clients do not verify it.
const lifetime = 10 * 365 * 24 * time.Hour

// selfSigned makes a certificate for connections of which only the encryption counts. Its key is elliptic: an RSA key would take a process
// with little CPU seconds.
func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := x509.Certificate{
		Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := signingrequest.Sign(template, key.Public(), nil, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key}, nil
}
