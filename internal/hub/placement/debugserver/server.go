// Package debugserver serves the endpoint that says why placements select what they do over HTTPS, for hubs whose
// API server is not theirs. On a standalone hub that is done by the API server.
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
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-io/capstan/internal/placement/report"
	"github.com/capstan-io/capstan/internal/servingcert"
)

// Bounds on what a caller may hold up.
const (
	headerTimeout   = 10 * time.Second
	idleTimeout     = 90 * time.Second
	shutdownTimeout = 5 * time.Second
)

// Options say where and as whom to serve.
type Options struct {
	// Address to listen at, as host:port.
	Address string
	// CertDir is a folder with the serving certificate, tls.crt and tls.key, which are read again when they change. Empty
	// means one that vouches for itself and lasts as long as the process: nobody can tell whose it is.
	CertDir string
	// TLS bounds versions and cipher suites; nil leaves them at the defaults.
	TLS func(*tls.Config)
}

// Add lets the manager serve the endpoint to those whom its cluster knows, whether or not it leads. It fails if the
// certificate cannot be read or nobody may listen at the address.
func Add(mgr ctrl.Manager, endpoint http.Handler, o Options) error {
	callers, err := newCallerAuthenticator(mgr)
	if err != nil {
		return err
	}
	certificate, err := servingCertificate(mgr, o.CertDir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return fmt.Errorf("serve why placements select what they do: %w; choose another address, or 0 to serve it nowhere", err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: certificate,
		// Whose it is decides callers, by what the cluster says at that time.
		ClientAuth: tls.RequestClientCert,
	}
	if o.TLS != nil {
		o.TLS(config)
	}
	mux := http.NewServeMux()
	mux.Handle(report.Path, callers.authenticate(endpoint))
	return mgr.Add(&manager.Server{
		Name:            "placement-debug",
		Server:          &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout},
		Listener:        tls.NewListener(listener, config),
		ShutdownTimeout: ptr.To(shutdownTimeout),
	})
}

type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

func servingCertificate(mgr ctrl.Manager, dir string) (getCertificate, error) {
	if dir == "" {
		return selfSigned()
	}
	certificate, err := servingcert.Read(dir)
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

// clientCA keeps up with the CA that signs the clients of the cluster.
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
