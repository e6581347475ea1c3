// Package debugserver serves the endpoint of package debug over HTTPS, for hubs in an existing cluster. On a standalone hub, the API server
// serves it.
package debugserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-io/capstan/internal/placement/report"
	"github.com/capstan-io/capstan/internal/servingcert"
)

// Timeouts of connections.
const (
	headerTimeout   = 10 * time.Second
	idleTimeout     = 90 * time.Second
	shutdownTimeout = 5 * time.Second
)

// Options configure the server.
type Options struct {
	// Address to listen at, as host:port.
	Address string
	// CertDir is a directory with the serving certificate, tls.crt and tls.key, which are read again when they change.
	CertDir string
	// CertFile and KeyFile are the serving certificate and its key under other names. Without them and CertDir, the server makes a
	// self-signed certificate, which clients cannot verify.
	CertFile, KeyFile string
	// TLS sets versions and cipher suites; nil keeps the defaults.
	TLS func(*tls.Config)
}

// Add adds the server to the manager; it serves on all replicas, not only on the leader. To everybody it says at /healthz, /livez and
// /readyz that it serves. It fails if the certificate cannot be read, or the address cannot be listened on.
func Add(mgr ctrl.Manager, endpoint http.Handler, o Options) error {
	callers, err := newCallerAuthenticator(mgr)
	if err != nil {
		return err
	}
	certificate, err := servingCertificate(mgr, o)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return fmt.Errorf("serve why placements select what they do: %w; choose another address", err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: certificate,
		// Certificates are verified by callerAuthenticator, as the CA of the cluster may change.
		ClientAuth: tls.RequestClientCert,
	}
	if o.TLS != nil {
		o.TLS(config)
	}
	mux := http.NewServeMux()
	mux.Handle(report.Path, callers.authenticate(endpoint))
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		mux.Handle(path, healthz.CheckHandler{Checker: healthz.Ping})
	}
	return mgr.Add(&manager.Server{
		Name:            "placement-debug",
		Server:          &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout},
		Listener:        tls.NewListener(listener, config),
		ShutdownTimeout: ptr.To(shutdownTimeout),
	})
}

type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

func servingCertificate(mgr ctrl.Manager, o Options) (getCertificate, error) {
	var certificate *servingcert.Certificate
	var err error
	switch {
	case o.CertFile != "":
		certificate, err = servingcert.ReadFiles(o.CertFile, o.KeyFile)
	case o.CertDir != "":
		certificate, err = servingcert.Read(o.CertDir)
	default:
		return selfSigned()
	}
	if err != nil {
		return nil, err
	}
	return certificate.Get, mgr.Add(certificate)
}

func selfSigned() (getCertificate, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, fmt.Errorf("make a serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("make a serving certificate: %w", err)
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
}

// clientCA follows changes of the CA that signs the clients of the cluster.
type clientCA struct {
	*dynamiccertificates.ConfigMapCAController
}

// Start implements manager.Runnable.
func (c clientCA) Start(ctx context.Context) error {
	c.Run(ctx, 1)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c clientCA) NeedLeaderElection() bool { return false }
