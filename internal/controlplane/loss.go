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

	"github.com/capstan-io/capstan/internal/controlplane/etcdkeys"
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
	// readAnew does so over new connections: those of read may be waiting before they are tried again.
	readAnew func(ctx context.Context) error
	// readyElsewhere reports whether another process of the hub is ready.
	readyElsewhere func(ctx context.Context) bool
}

// await fails once the etcd has not answered for lostAfter, and another process of the hub is ready: when this one ends, its agents go
// there. While there is none, as when the etcd is away for all, agents would find nobody instead, and lose their tunnels. The etcd is
// tried anew last, as it may have come back for all. It returns nil when ctx ends.
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
		err := inAskTimeout(ctx, l.read)
		if err != nil && time.Since(answered) >= lostAfter && l.readyElsewhere(ctx) {
			err = inAskTimeout(ctx, l.readAnew)
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("the external etcd has not answered this process for %s, and another one of the hub is ready: %w",
					time.Since(answered).Round(time.Second), err)
			}
		}
		if err == nil {
			answered = time.Now()
		}
	}
}

func inAskTimeout(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return read(ctx)
}

// readAnew fails unless the external etcd answers over new connections.
func (h *hub) readAnew(ctx context.Context) error {
	client, err := newClient(ctx, h.Config.Etcd)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return etcdkeys.New(client, h.Config.Etcd.Prefix, etcdkeys.Encryption{}).Read(ctx)
}

// readyElsewhere reports whether a process of the hub is ready: another one, as this one is not without its etcd.
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
