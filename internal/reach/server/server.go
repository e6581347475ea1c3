// Package server is the hub's side of the tunnels into managed clusters: it holds the tunnels that agents have made, and serves the API of
// each cluster, and those of its services that a list of the hub exposes, as the subresource proxy of managedclusters.
//
// The API server in front of it has authenticated and authorized the requests: who may create managedclusters/tunnel makes a tunnel, and
// who has a verb on managedclusters/proxy sends requests to the cluster. There they are requests of the user of the hub, who has the
// rights that the cluster gives to that user: package access. Who may create managedclusters/portforward connects to addresses as agents
// reach them, and shows the cluster credentials of its own. Who may create managedclusters/stream is another process of the hub with the
// same API, and is trusted with whose requests it sends.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/reach/peers"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

const (
	// maxTunnels is how many tunnels a cluster has at most: an agent that starts again has a second one until the first is found dead, and
	// one with another certificate until nothing goes through the first. One more ends the oldest.
	maxTunnels = 4
	// idleStreams and idleTime are how many streams of a cluster are kept for later requests, and for how long.
	idleStreams = 32
	idleTime    = 90 * time.Second
	// dialTimeout is how long the agent may take to connect to an address.
	dialTimeout = 15 * time.Second
)

// Options say what a Server answers for.
type Options struct {
	// Version is that of the resource managedclusters.
	Version schema.GroupVersion
	// ExposedServices names the ConfigMap that lists services which users of the hub may reach. Without a name they reach none.
	ExposedServices types.NamespacedName
	// ServicesOnly refuses what is for the API servers of clusters.
	ServicesOnly bool
	// Peers are the other processes of the hub, of which each may have the tunnel of a cluster; nil if there are none.
	Peers *peers.Peers
}

// Server has the tunnels. Make it with New, hand its Handler to the API server, and Run it.
type Server struct {
	version schema.GroupVersion
	// Changed is called with the name of a cluster that has a tunnel now, or none any more. It is set before there are any.
	Changed func(cluster string)

	clusters     *clusters
	exposed      exposed
	servicesOnly bool
	peers        *peers.Peers
	// transport sends requests to the agents of clusters, at their addresses.
	transport *http.Transport

	// mu is for all clusters. Nothing waits for an agent while it is held, so tunnels, whose ends may take their time, are not closed then.
	mu sync.Mutex
	// reached are the clusters that have tunnels.
	reached map[string]*cluster
	// made is how many tunnels have been made, and arrived is closed, and another one made, when there is one more.
	made    int
	arrived chan struct{}
}

// cluster is one that has tunnels.
type cluster struct {
	tunnels []*tunnel.Tunnel // the newest last
	newest  int              // of all that were made
}

// New returns a server without tunnels.
func New(o Options) *Server {
	s := &Server{version: o.Version, Changed: func(string) {}, exposed: exposed{list: o.ExposedServices},
		servicesOnly: o.ServicesOnly, peers: o.Peers, reached: map[string]*cluster{}, arrived: make(chan struct{})}
	s.transport = s.newTransport()
	s.clusters = newClusters(s.cut)
	return s
}

// Ready says why requests cannot be answered yet.
func (s *Server) Ready() error {
	select {
	case <-s.clusters.synced:
		return nil
	default:
		return errors.New("the clusters of the hub are not known yet")
	}
}

// Run follows the clusters and their add-ons until the context ends, and ends the tunnels of those that may have none any more. Until it
// knows them there are no tunnels. It also follows which services are exposed, and finds the other processes of the hub.
func (s *Server) Run(ctx context.Context, config *rest.Config) error {
	defer s.closeAll()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return s.clusters.run(ctx, config) })
	all.Go(func() error { return s.exposed.run(ctx, config) })
	if s.peers != nil {
		all.Go(func() error { return s.peers.Run(ctx, client) })
	}
	return all.Wait()
}

// keep has requests use a tunnel until it or the context ends, and returns then.
func (s *Server) keep(ctx context.Context, name string, t *tunnel.Tunnel) {
	defer context.AfterFunc(ctx, t.Close)()
	if s.add(name, t) {
		s.Changed(name)
	}
	defer func() {
		if s.remove(name, t) {
			s.Changed(name)
		}
	}()
	tunnelCount.Inc()
	defer tunnelCount.Dec()
	// It may have been taken back since the agent sent the request, before there was anything to end.
	if err := s.clusters.allow(ctx, name); err != nil {
		t.Close()
	}
	klog.FromContext(ctx).V(1).Info("An agent has made a tunnel", "cluster", name)
	<-t.Done()
	klog.FromContext(ctx).V(1).Info("A tunnel has ended", "cluster", name)
}

// add says whether the cluster had no tunnel before.
func (s *Server) add(name string, t *tunnel.Tunnel) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.reached[name]
	if c == nil {
		c = &cluster{}
		s.reached[name] = c
	}
	s.made++
	c.tunnels, c.newest = append(c.tunnels, t), s.made
	close(s.arrived)
	s.arrived = make(chan struct{})
	for _, old := range c.tunnels[:max(0, len(c.tunnels)-maxTunnels)] {
		go old.Close()
	}
	return len(c.tunnels) == 1
}

// remove says whether the cluster has no tunnel any more.
func (s *Server) remove(name string, t *tunnel.Tunnel) (last bool) {
	t.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.reached[name]
	c.tunnels = slices.DeleteFunc(c.tunnels, func(other *tunnel.Tunnel) bool { return other == t })
	if len(c.tunnels) == 0 {
		delete(s.reached, name)
	}
	return len(c.tunnels) == 0
}

// cut ends all tunnels of a cluster.
func (s *Server) cut(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.reached[name]; c != nil {
		for _, t := range c.tunnels {
			go t.Close()
		}
	}
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.reached {
		for _, t := range c.tunnels {
			go t.Close()
		}
	}
}

// address is that of the agent of a cluster for the transport. It is another one when the agent has made another tunnel, so that no request
// takes a stream that was kept in a tunnel of before, whose other end may be gone.
func (s *Server) address(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := 0
	if c := s.reached[name]; c != nil {
		newest = c.newest
	}
	return net.JoinHostPort(name, strconv.Itoa(newest))
}

// newTransport sends requests to agents. Streams are kept, so that a request does not wait for a new one; they end with their tunnel.
func (s *Server) newTransport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			name, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return s.open(ctx, name)
		},
		MaxIdleConnsPerHost: idleStreams, IdleConnTimeout: idleTime,
		DisableCompression:     true, // that is between the user and the cluster
		MaxResponseHeaderBytes: maxHeader,
	}
}

// open opens a stream to the agent of a cluster, in a tunnel of this process or of another one. Whoever waits for a process that is gone
// takes the tunnel that the agent makes to this one meanwhile. It may have made it to yet another one: so all are tried once more.
func (s *Server) open(ctx context.Context, name string) (net.Conn, error) {
	conn, err := s.openAnywhere(ctx, name)
	if isGone(err) && ctx.Err() == nil {
		return s.openAnywhere(ctx, name)
	}
	return conn, err
}

// isGone reports whether nothing has answered at the address of a process, not even that nobody listens. Nothing has been sent then. The
// error is one of several processes, of which each may have failed in its own way.
func isGone(err error) bool {
	switch e := err.(type) { //nolint:errorlint // errors.As would find the first one alone
	case *net.OpError:
		return e.Op == "dial" && e.Timeout()
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), isGone)
	case interface{ Unwrap() error }:
		return isGone(e.Unwrap())
	}
	return false
}

// openAnywhere takes the first tunnel that there is.
func (s *Server) openAnywhere(ctx context.Context, name string) (net.Conn, error) {
	conn, err := s.openHere(name)
	var notConnected *NotConnectedError
	if s.peers == nil || !errors.As(err, &notConnected) {
		return conn, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // which ends no stream that is open
	others := make(chan opened, 1)
	go func() {
		conn, err := s.peers.Dial(ctx, name)
		others <- opened{conn, err}
	}()
	for {
		arrived := s.arrival()
		if conn, err := s.openHere(name); !errors.As(err, &notConnected) {
			go closeLate(others)
			return conn, err
		}
		select {
		case <-arrived:
		case found := <-others:
			if found.err == nil {
				return found.conn, nil
			}
			if conn, err := s.openHere(name); err == nil { // the tunnel has been made in the same moment
				return conn, nil
			}
			return nil, notThere(notConnected, found.err)
		}
	}
}

// opened is what became of a stream.
type opened struct {
	conn net.Conn
	err  error
}

// closeLate closes a stream in the tunnel of another process that is opened although one of this process was taken.
func closeLate(others <-chan opened) {
	if late := <-others; late.err == nil {
		_ = late.conn.Close()
	}
}

// arrival is closed when an agent makes a tunnel to this process.
func (s *Server) arrival() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

// notThere says that a cluster is not connected, and where that is not sure, why.
func notThere(notConnected *NotConnectedError, err error) error {
	if err == peers.ErrNotThere { //nolint:errorlint // wrapped, it says why that is not sure
		return notConnected
	}
	return fmt.Errorf("%w, as far as is known: %w", notConnected, err)
}

// openHere opens a stream in the newest tunnel of this process that takes one. One that the agent has retired counts as none: the other one
// that the agent has may be that of another process.
func (s *Server) openHere(name string) (net.Conn, error) {
	s.mu.Lock()
	var tunnels []*tunnel.Tunnel
	if c := s.reached[name]; c != nil {
		tunnels = slices.Clone(c.tunnels)
	}
	s.mu.Unlock()
	err := error(&NotConnectedError{Cluster: name})
	for _, t := range slices.Backward(tunnels) {
		conn, openErr := t.Open()
		if openErr == nil {
			return conn, nil
		}
		if !errors.Is(openErr, tunnel.ErrRetired) {
			err = openErr
		}
	}
	return nil, err
}

// NotConnectedError says that no agent of a cluster has a tunnel to this hub.
type NotConnectedError struct{ Cluster string }

func (e *NotConnectedError) Error() string {
	return fmt.Sprintf("cluster %s is not connected: its agent has no tunnel to the hub", e.Cluster)
}

// DialCluster connects to an address as the agent of a cluster reaches it. The agent says which addresses it connects to; the API server
// of its cluster is kubernetes.default.svc:443. It fails with a NotConnectedError if the cluster has no tunnel.
func (s *Server) DialCluster(ctx context.Context, name, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := s.open(ctx, name)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	through, err := connect(conn, address)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to %s through cluster %s: %w", address, name, errors.Join(ctx.Err(), err))
	}
	return through, nil
}
