// Package servingcert keeps up with the certificate of a server that is in files, such as those of the volume of a Secret.
package servingcert

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

// Certificate is what the files said when they last made sense. It is a manager.Runnable: without Start it stays as it is.
//
// Changes of the files are watched for. Where the machine has no watches left, the files are looked at instead, and the
// server starts all the same; controller-runtime's certwatcher would not.
type Certificate struct {
	certFile, keyFile string
	changes           *filewatch.Watcher
	current           atomic.Pointer[tls.Certificate]
}

// Read reads tls.crt and tls.key in a folder. It fails if they are not a certificate and its key.
func Read(dir string) (*Certificate, error) {
	c, err := ReadFiles(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("%w; put it and its key into %s as tls.crt and tls.key", err, dir)
	}
	return c, nil
}

// ReadFiles reads a certificate and its key. It fails if they are not that.
func ReadFiles(certFile, keyFile string) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile}
	c.changes = filewatch.New(func() []string { return []string{c.certFile, c.keyFile} })
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	return c, nil
}

// Get is for the GetCertificate of a tls.Config.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// Start follows the files until the context ends.
func (c *Certificate) Start(ctx context.Context) error {
	c.changes.Run(ctx, func() {
		if err := c.load(); err != nil {
			log.FromContext(ctx).Error(err, "The serving certificate cannot be used; the one from before stays in use")
		}
	})
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every server needs the certificate.
func (c *Certificate) NeedLeaderElection() bool { return false }

// load takes over what the files say, if they make sense.
func (c *Certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		c.current.Store(&pair)
	}
	return err
}
