// Package dialer connects to addresses in managed clusters through the API of a hub, for processes that do not have the tunnels themselves.
package dialer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/tcp"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// Dialer dials by the subresource portforward of an aggregated API.
type Dialer struct {
	hub    *url.URL
	client *http.Client
}

// New returns a Dialer for the hub of a config.
func New(hub *rest.Config) (*Dialer, error) {
	hub = rest.CopyConfig(hub)
	hub.NextProtos = []string{tunnel.HTTP}
	hub.Timeout = 0
	new(tcp.Dialer).Use(hub)
	client, err := rest.HTTPClientFor(hub)
	if err != nil {
		return nil, fmt.Errorf("make a client for connections to clusters: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(hub)
	if err != nil {
		return nil, err
	}
	return &Dialer{hub: base, client: client}, nil
}

// DialCluster connects to an address as the agent of a cluster reaches it.
func (d *Dialer) DialCluster(ctx context.Context, cluster, address string) (net.Conn, error) {
	to := d.hub.JoinPath(api.Path(api.Aggregated, cluster, fleet.SubresourcePortForward))
	to.RawQuery = url.Values{api.QueryAddress: {address}}.Encode()
	stream, err := tunnel.Upgrade(ctx, d.client, to.String(), api.ProtocolPortForward)
	if err != nil {
		return nil, fmt.Errorf("connect to %s through cluster %s: %w", address, cluster, err)
	}
	return stream, nil
}
