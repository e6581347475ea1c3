package hubclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

type noHub struct{}

func (noHub) RoundTrip(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }

// RG-54: an agent leaves a hub that is gone at once, for another or for good, although its caches are about to try it again.
func TestEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub, err := NewCluster(&rest.Config{Host: "https://hub.invalid", Transport: noHub{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- hub.Start(ctx) }()
		if _, err := hub.GetCache().GetInformer(ctx, &workv1.ManifestWork{}, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Minute)
		synctest.Wait()
		cancel()
		at := time.Now()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(at); took > 0 {
			t.Errorf("the end took %s", took)
		}
		<-time.After(5 * time.Minute) // until the cache has looked up
	})
}

// recordingTransport is a hub that is not there, and reports of each request whether it is a watch.
type recordingTransport chan bool

func (a recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case a <- r.URL.Query().Get("watch") != "":
	case <-r.Context().Done():
	}
	return nil, syscall.ECONNREFUSED
}

// RG-20: a cache of an agent lists before it watches, also where client-go would watch at once.
func TestListsFirst(t *testing.T) {
	t.Parallel()
	for _, kind := range []client.Object{&workv1.ManifestWork{}, &clusterv1.ManagedCluster{}} {
		requests := make(recordingTransport)
		hub, err := NewCluster(&rest.Config{Host: "https://hub.invalid", Transport: requests}, WorksByName(nil))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- hub.Start(ctx) }()
		if _, err := hub.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
		if watch := <-requests; watch {
			t.Errorf("the first request for a %T is a watch", kind)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// countingTransport is a hub that is not there, and counts what it is asked.
type countingTransport struct{ requests atomic.Int32 }

func (c *countingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return nil, syscall.ECONNREFUSED
}

// The clients of an agent share the connections to its hub, also where the configuration says how they connect.
func TestClientsShareConnections(t *testing.T) {
	t.Parallel()
	config := &rest.Config{Host: "https://hub.invalid", Proxy: http.ProxyURL(nil),
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("a connection of its own")
		}}
	requests := &countingTransport{}
	shared := &http.Client{Transport: requests}
	direct, err := NewOver(shared, config)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := NewCluster(config, Over(shared))
	if err != nil {
		t.Fatal(err)
	}
	for _, reader := range []client.Reader{direct, hub.GetAPIReader()} {
		if err := reader.Get(t.Context(), client.ObjectKey{Name: "c1"}, &clusterv1.ManagedCluster{}); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	}
	if got := requests.requests.Load(); got != 2 || hub.GetHTTPClient() != shared {
		t.Errorf("%d requests use the connections that are shared", got)
	}
}
