package clusterproxy

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

// certificate is that of the agent for the hub, in files that hold another one when it is renewed.
type certificate struct {
	certFile, keyFile string
	// end is that of the one that was shown last.
	end atomic.Pointer[time.Time]
}

// certificateOf is nil if clients of a configuration have no certificate in files.
func certificateOf(config *rest.Config) *certificate {
	if config.CertFile == "" || len(config.CertData) > 0 {
		return nil
	}
	return &certificate{certFile: config.CertFile, keyFile: config.KeyFile}
}

// client returns a client of a configuration with the certificate. Its connections stay when there is another one. Those of a client that
// client-go gives the files are closed then, whatever goes through them.
func (c *certificate) client(config *rest.Config) (*http.Client, error) {
	if c == nil {
		return rest.HTTPClientFor(config)
	}
	settings, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	settings.TLS.CertFile, settings.TLS.KeyFile = "", ""
	settings.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: c.show}
	made, err := transport.New(settings)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: made}, nil
}

func (c *certificate) show() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, err
	}
	c.end.Store(&pair.Leaf.NotAfter)
	return &pair, nil
}

// shownUntil is when the certificate ends that was shown last.
func (c *certificate) shownUntil() (end time.Time) {
	if c != nil && c.end.Load() != nil {
		end = *c.end.Load()
	}
	return end
}

// renewals tells, until the context ends, that the file holds another certificate.
func (c *certificate) renewals(ctx context.Context) <-chan struct{} {
	if c == nil {
		return nil
	}
	renewed := make(chan struct{}, 1)
	changes := filewatch.New(func() []string { return []string{c.certFile} })
	go changes.Run(ctx, func() {
		select {
		case renewed <- struct{}{}:
		default: // what waits is for this one, too
		}
	})
	return renewed
}
