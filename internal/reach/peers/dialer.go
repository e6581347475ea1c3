package peers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/machinery/tcp"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// dialers are those for all addresses.
type dialers struct {
	mu sync.Mutex
	// access is what Options.Access said at a time.
	access *rest.Config
	at     time.Time
	of     map[string]*dialer
}

// dialer sends requests to one process.
type dialer struct {
	access *rest.Config
	base   *url.URL
	client *http.Client
}

// renew returns the access that there is now, or was at most so long ago.
func (d *dialers) renew(ctx context.Context, p *Peers, ago time.Duration) (*rest.Config, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.access != nil && p.Clock.Since(d.at) < ago {
		return d.access, nil
	}
	access, err := p.Access(ctx)
	switch {
	case err != nil && d.access == nil:
		return nil, fmt.Errorf("find out how other processes of the hub are reached: %w", err)
	case err != nil && ctx.Err() != nil: // who asked has left, and nothing was found out
		return d.access, nil
	case err != nil:
		klog.FromContext(ctx).Error(err, "Find out how other processes of the hub are reached now")
	case !same(access, d.access):
		d.access = access
		clear(d.of)
	}
	d.at = p.Clock.Now()
	return d.access, nil
}

// get returns the one for an address.
func (d *dialers) get(access *rest.Config, address string) (*dialer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found := d.of[address]; found != nil && found.access == access {
		return found, nil
	}
	made, err := newDialer(access, address)
	if err == nil {
		d.of[address] = made
	}
	return made, err
}

// same reports whether connections of one access are as good as those of the other.
func same(a, b *rest.Config) bool {
	return b != nil && a.Host == b.Host && string(a.CAData) == string(b.CAData) && string(a.CertData) == string(b.CertData)
}

func newDialer(access *rest.Config, address string) (*dialer, error) {
	config := rest.CopyConfig(access)
	config.NextProtos = []string{tunnel.HTTP}
	config.Timeout = 0
	// A stream that is kept for later requests ends soon after the process at its other end has gone. Nothing ends it
	// for data that is not acknowledged: a cluster may leave off reading a request for hours.
	to := &net.Dialer{Timeout: connectTimeout, KeepAliveConfig: tcp.Probes}
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return to.DialContext(ctx, network, address)
	}
	config.Proxy = forwardproxy.None // to which Dial does not lead: the other process would be asked as if it were one
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for other processes of the hub: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &dialer{access: access, base: base, client: client}, nil
}
