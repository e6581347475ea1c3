//go:build bench

package bench

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
	"github.com/capstan-io/capstan/test/env"
)

var (
	streamMiB   = flag.Int("stream-mib", 1024, "how much TestProxy transfers in one stream, in MiB")
	slowReaders = flag.Int("slow-readers", 100, "how many requests TestProxy makes of which it does not read the answers")
)

const (
	bigLists = "/api/v1/namespaces/default/configmaps?labelSelector=size%3Dbig"
	// apiServer is the URL of the API server inside its cluster, which clients here do not look up.
	apiServer = "https://kubernetes.default.svc"
)

// measureStream transfers much through one connection to the API server of the cluster, directly and through a port forward of the hub.
func measureStream(t *testing.T, r *report, hub, managed *env.Server, agent *env.Agent) {
	cluster := hubConfig(t, managed)
	add := func(name, unit string, value float64) {
		r.add(fmt.Sprintf("%d MiB in one stream: %s", *streamMiB, name), unit, "", value)
	}
	n, took := transfer(t, clientOver(t, cluster, dialDirectly(t, cluster)))
	add("throughput, direct", "MB/s", float64(n)/(1<<20)/took.Seconds())

	c := clientOver(t, cluster, dialThrough(t, hubConfig(t, hub)))
	hubBefore, agentBefore := usageOf(t, hub.Pid()), usageOf(t, agent.Pid())
	n, took = transfer(t, c)
	hubAfter, agentAfter := usageOf(t, hub.Pid()), usageOf(t, agent.Pid())
	add("throughput, through the hub", "MB/s", float64(n)/(1<<20)/took.Seconds())
	add("memory of the hub", "MB more", hubAfter.rss-hubBefore.rss)
	add("memory of the agent", "MB more", agentAfter.rss-agentBefore.rss)
	add("hub CPU", "ms/GiB", milliseconds([]time.Duration{hubAfter.cpu - hubBefore.cpu})[0]/float64(n)*(1<<30))
	add("agent CPU", "ms/GiB", milliseconds([]time.Duration{agentAfter.cpu - agentBefore.cpu})[0]/float64(n)*(1<<30))
}

// transfer reads lists until they have the size of the stream.
func transfer(t *testing.T, c *http.Client) (n int64, took time.Duration) {
	t.Helper()
	begin := time.Now()
	for n < int64(*streamMiB)<<20 {
		n += fetch(t, c, apiServer+bigLists)
	}
	return n, time.Since(begin)
}

type dialFunc func(ctx context.Context) (net.Conn, error)

func dialDirectly(t *testing.T, managed *rest.Config) dialFunc {
	t.Helper()
	server, err := url.Parse(managed.Host)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Host)
	}
}

// dialThrough makes a port forward of the hub.
func dialThrough(t *testing.T, hub *rest.Config) dialFunc {
	t.Helper()
	hub = rest.CopyConfig(hub)
	hub.NextProtos = []string{tunnel.HTTP}
	upgrades := clientOf(t, hub)
	forward := hub.Host + api.Path(api.Standalone, "cluster1", fleet.SubresourcePortForward) + "?" +
		url.Values{api.QueryAddress: {"kubernetes.default.svc:443"}}.Encode()
	return func(ctx context.Context) (net.Conn, error) {
		return tunnel.Upgrade(ctx, upgrades, forward, api.ProtocolPortForward)
	}
}

// clientOver has one connection to the API server of the cluster, with TLS over what it dials. The connection is made.
func clientOver(t *testing.T, managed *rest.Config, dial dialFunc) *http.Client {
	t.Helper()
	config := rest.CopyConfig(managed)
	config.Host, config.ServerName, config.NextProtos = apiServer, "localhost", []string{tunnel.HTTP}
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxConnsPerHost: 1, DisableCompression: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return tls.Client(conn, secure), nil
		}}
	t.Cleanup(transport.CloseIdleConnections)
	authenticated, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: authenticated}
	fetch(t, c, apiServer+"/version")
	return c
}

// measureSlowReaders has the cluster wait for clients that do not read, and fails if hub or agent hold more for them than windows and
// buffers.
func measureSlowReaders(t *testing.T, r *report, hub *env.Server, agent *env.Agent, through *rest.Config) {
	const mostEach = 4.0 // MB: the windows of the streams on both sides, of HTTP/2, and buffers
	config := rest.CopyConfig(through)
	config.NextProtos = []string{"http/1.1"} // a connection for each
	wait(t, settled)
	hubBefore, agentBefore := usageOf(t, hub.Pid()), usageOf(t, agent.Pid())
	c := clientOf(t, config)
	for range *slowReaders {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+bigLists, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s %v", response.Status, err)
		}
	}
	wait(t, settled)
	for name, more := range map[string]float64{
		"hub":   usageOf(t, hub.Pid()).rss - hubBefore.rss,
		"agent": usageOf(t, agent.Pid()).rss - agentBefore.rss,
	} {
		each := more / float64(*slowReaders)
		r.add(fmt.Sprintf("%d clients that do not read, memory of the %s for each", *slowReaders, name), "kB", "", each*1024)
		if each > mostEach {
			t.Errorf("the %s holds %.1f MB for each client that does not read; at most %.0f are for windows and buffers", name, each, mostEach)
		}
	}
}
