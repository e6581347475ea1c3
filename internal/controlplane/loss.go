package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

const (
	// lossInterval is the pause between two reads of an external etcd.
	lossInterval = 5 * time.Second
	// lostAfter is for how long an external etcd does not answer before a process looks for another one that has it.
	lostAfter = 30 * time.Second
	// askTimeout is how long the etcd, or another process, may take to answer.
	askTimeout = 5 * time.Second
)

// loss is how a process of a hub finds out that it alone has lost the external etcd.
type loss struct {
	// read fails unless the etcd answers.
	read func(ctx context.Context) error
	// readyElsewhere reports whether another process of the hub is ready.
	readyElsewhere func(ctx context.Context) bool
}

// await fails once the etcd has not answered for lostAfter, and another process of the hub is ready: when this one ends, its agents go
// there. While there is none, as when the etcd is away for all, agents would find nobody instead, and lose their tunnels. It returns nil
// when ctx ends.
func (l loss) await(ctx context.Context) error {
	ticker := time.NewTicker(lossInterval)
	defer ticker.Stop()
	answered := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := l.tryRead(ctx)
		switch silent := time.Since(answered); {
		case err == nil:
			answered = time.Now()
		case silent >= lostAfter && l.readyElsewhere(ctx):
			return fmt.Errorf("the external etcd has not answered this process for %s, and another one of the hub is ready: %w",
				silent.Round(time.Second), err)
		}
	}
}

func (l loss) tryRead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return l.read(ctx)
}

// readyElsewhere reports whether another process of the hub is ready. This one is not without its etcd.
func (h *hub) readyElsewhere(ctx context.Context) bool {
	roots, err := certutil.NewPool(h.keys.Bundle(pki.RootCA))
	if err != nil {
		return false
	}
	hub, err := url.Parse(h.address.url())
	return err == nil && anyReady(ctx, hub, roots)
}

// anyReady reports whether what answers at any of the addresses of a hub is ready.
func anyReady(ctx context.Context, hub *url.URL, roots *x509.CertPool) bool {
	addresses, err := net.DefaultResolver.LookupHost(ctx, hub.Hostname())
	return err == nil && slices.ContainsFunc(addresses, func(address string) bool { return isReady(ctx, hub, address, roots) })
}

func isReady(ctx context.Context, hub *url.URL, address string, roots *x509.CertPool) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, hub.JoinPath("readyz").String(), nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, named string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(named)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(address, port))
		},
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
