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

const bigLists = "/api/v1/namespaces/default/configmaps?labelSelector=size%3Dbig"

// measureStream transfers much through one connection to the API server of the cluster.
func measureStream(t *testing.T, r *report, hub, managed *env.Server, agent *env.Agent) {
	c := clientThrough(t, hubConfig(t, hub), hubConfig(t, managed))
	fetch(t, c, "https://kubernetes.default.svc/version")
	hubBefore, agentBefore := usageOf(t, hub.Pid()), usageOf(t, agent.Pid())
	begin, n := time.Now(), int64(0)
	for n < int64(*streamMiB)<<20 {
		n += fetch(t, c, "https://kubernetes.default.svc"+bigLists)
	}
	took := time.Since(begin)
	hubAfter, agentAfter := usageOf(t, hub.Pid()), usageOf(t, agent.Pid())
	add := func(name, unit string, value float64) {
		r.add(fmt.Sprintf("%d MiB in one stream: %s", *streamMiB, name), unit, "", value)
	}
	add("throughput", "MB/s", float64(n)/(1<<20)/took.Seconds())
	add("memory of the hub", "MB more", hubAfter.rss-hubBefore.rss)
	add("memory of the agent", "MB more", agentAfter.rss-agentBefore.rss)
	add("hub CPU", "ms/GiB", milliseconds([]time.Duration{hubAfter.cpu - hubBefore.cpu})[0]/float64(n)*(1<<30))
	add("agent CPU", "ms/GiB", milliseconds([]time.Duration{agentAfter.cpu - agentBefore.cpu})[0]/float64(n)*(1<<30))
}

// clientThrough has one connection to the API server of the cluster, which goes through a port forward of the hub.
func clientThrough(t *testing.T, hub, managed *rest.Config) *http.Client {
	t.Helper()
	hub = rest.CopyConfig(hub)
	hub.NextProtos = []string{tunnel.HTTP}
	upgrades := clientOf(t, hub)
	forward := hub.Host + api.Path(api.Standalone, "cluster1", fleet.SubresourcePortForward) + "?" +
		url.Values{api.QueryAddress: {"kubernetes.default.svc:443"}}.Encode()
	config := rest.CopyConfig(managed)
	config.Host, config.ServerName, config.NextProtos = "https://kubernetes.default.svc", "localhost", []string{"http/1.1"}
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxConnsPerHost: 1, DisableCompression: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := tunnel.Upgrade(ctx, upgrades, forward, api.ProtocolPortForward)
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
	return &http.Client{Transport: authenticated}
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
