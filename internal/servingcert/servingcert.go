// Package servingcert keeps up with the certificate of a server that is in files, such as those of the volume of a Secret.
package servingcert

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Certificate is what the files said when they last made sense. It is a manager.Runnable: without Start it stays as it is.
//
// Changes of the files are watched for. Where the machine has no watches left, the files are read every minute instead, and the
// server starts all the same; controller-runtime's certwatcher would not.
type Certificate struct {
	files   *dynamiccertificates.DynamicCertKeyPairContent
	current atomic.Pointer[tls.Certificate]
}

// Read reads tls.crt and tls.key in a folder. It fails if they are not a certificate and its key.
func Read(dir string) (*Certificate, error) {
	files, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate: %w; put it and its key into %s as tls.crt and tls.key", err, dir)
	}
	c := &Certificate{files: files}
	c.load()
	files.AddListener(listener(c.load))
	return c, nil
}

// Get is for the GetCertificate of a tls.Config.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// Start follows the files until the context ends.
func (c *Certificate) Start(ctx context.Context) error {
	c.files.Run(ctx, 1)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: whoever serves needs the certificate.
func (c *Certificate) NeedLeaderElection() bool { return false }

// load takes over what the files say. Files that do not make sense do not get here.
func (c *Certificate) load() {
	if pair, err := tls.X509KeyPair(c.files.CurrentCertKeyContent()); err == nil {
		c.current.Store(&pair)
	}
}

// listener is called after each change.
type listener func()

// Enqueue implements dynamiccertificates.Listener.
func (l listener) Enqueue() { l() }
