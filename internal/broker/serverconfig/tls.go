package serverconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/machinery/filewatch"
	"github.com/capstan-io/capstan/internal/servingcert"
)

// Certificates are what the server shows to clients, and what it verifies theirs by, as the files said when they last made sense. It is a
// manager.Runnable: without Start they stay as they are.
type Certificates struct {
	bounds  *tls.Config
	serving *servingcert.Certificate
	file    string
	changes *filewatch.Watcher
	roots   atomic.Pointer[x509.CertPool]
}

// Certificates reads the files that the configuration names.
func (c *Config) Certificates() (*Certificates, error) {
	bounds, err := c.tls()
	if err != nil {
		return nil, err
	}
	serving, err := servingcert.ReadFiles(c.TLSCertFile, c.TLSKeyFile)
	if err != nil {
		return nil, err
	}
	files := &Certificates{bounds: bounds, serving: serving, file: c.ClientCAFile}
	files.changes = filewatch.New(func() []string { return []string{files.file} })
	return files, files.load()
}

// ClientCAs returns what client certificates are verified by now.
func (c *Certificates) ClientCAs() *x509.CertPool { return c.roots.Load() }

// TLS returns the configuration of the server. A client need not have a certificate; one that it has must be valid.
func (c *Certificates) TLS() *tls.Config {
	config := c.bounds.Clone()
	config.NextProtos = []string{"h2"}
	config.GetCertificate = c.serving.Get
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.ClientCAs = c.ClientCAs()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.GetConfigForClient, now.ClientCAs = nil, c.ClientCAs()
		return now, nil
	}
	return config
}

// Start follows the files until the context ends.
func (c *Certificates) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.serving.Start(ctx) })
	group.Go(func() error {
		c.changes.Run(ctx, func() {
			if err := c.load(); err != nil {
				log.FromContext(ctx).Error(err, "The certificates of client CAs cannot be used; those from before stay in use")
			}
		})
		return nil
	})
	return group.Wait()
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every server needs the certificates.
func (c *Certificates) NeedLeaderElection() bool { return false }

func (c *Certificates) load() error {
	content, err := os.ReadFile(c.file)
	if err != nil {
		return fmt.Errorf("client_ca_file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return fmt.Errorf("client_ca_file: %w", errors.New(c.file+" has no certificates in PEM"))
	}
	c.roots.Store(roots)
	return nil
}
