package clusterproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
	"github.com/capstan-io/capstan/internal/machinery/tcp"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/reach/agentconfig"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// The wait before another attempt doubles from the first to the last, and is up to twice as long, so that the agents of a hub that has
// started again do not all come at once. After a tunnel it is the first. A hub at which nothing listens is tried sooner: that costs it
// nothing, and it may be back at any moment. So is one that has just started, or whose server of tunnels has, or that does not answer a
// load balancer in front of it. One that refuses, or is silent because it is too busy, is left alone for longer.
const (
	firstRetry       = 50 * time.Millisecond
	absentRetry      = 800 * time.Millisecond
	unavailableRetry = time.Second
	lastRetry        = 12800 * time.Millisecond
)

// dialTimeout is how long the hub may take to give a tunnel. It waits itself for a while when it has just started.
const dialTimeout = 30 * time.Second

// errSilent says that the hub has not given a tunnel in that time, as after a cut that nobody is told of.
var errSilent = fmt.Errorf("the hub has not answered for %s", dialTimeout)

// retireInterval is how often it is found out whether a tunnel is still of use whose place another one has taken.
const retireInterval = 10 * time.Second

// headerTimeout is how long a request in a stream may take to arrive.
const headerTimeout = 30 * time.Second

// link is a tunnel that is made again when it ends.
type link struct {
	cluster string
	config  *rest.Config // of the hub
	// certificate is that of the agent in the configuration; nil if there is none.
	certificate *certificate
	base        *url.URL
	handler     *apiHandler
	changed     func()
	clock       clock.WithTicker

	mu        sync.Mutex
	route     route
	ctx       context.Context //nolint:containedctx // that of the process, from which tunnels come
	enabled   bool
	stop      context.CancelFunc
	connected bool
	problem   string
}

// route is how the hub is reached.
type route struct {
	agentconfig.Config
	hub *http.Client
}

// newLink returns one that is not enabled yet. It calls changed when its state is another.
func newLink(o Options, allowed *rules, changed func()) (*link, error) {
	config := rest.CopyConfig(o.Hub.GetConfig())
	config.NextProtos = []string{tunnel.HTTP}
	config.Timeout = 0
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	answers, err := newHandler(o.Managed, allowed, o.InCluster)
	if err != nil {
		return nil, fmt.Errorf("make a client for requests of users of the hub: %w", err)
	}
	l := &link{cluster: o.Cluster, config: config, certificate: certificateOf(config), base: base, handler: answers, changed: changed,
		clock: o.Clock}
	l.route, err = l.routeFor(agentconfig.Config{})
	return l, err
}

// routeFor is the route to the hub through the proxy of the configuration. One without a proxy leaves it to the hub kubeconfig.
func (l *link) routeFor(c agentconfig.Config) (route, error) {
	proxy, set, err := c.ProxyFor(l.base)
	if err != nil {
		return route{}, fmt.Errorf("the proxy for tunnels: %w", err)
	}
	config := rest.CopyConfig(l.config)
	switch {
	case proxy != nil:
		forwardproxy.Proxy{URL: proxy, Trust: rest.TLSClientConfig{CAData: c.Proxy.CABundle}}.Carry(config)
	case set:
		config.Dial, config.Proxy = nil, forwardproxy.None
		(&tcp.Dialer{Probe: true}).Use(config)
	}
	hub, err := l.certificate.client(config)
	if err != nil {
		return route{}, fmt.Errorf("make a client for tunnels: %w", err)
	}
	return route{Config: c, hub: hub}, nil
}

// configure has the tunnel made again if the hub is to be reached otherwise, and services in another domain.
func (l *link) configure(c agentconfig.Config) error {
	l.handler.services.setDomain(c.ServiceDomain)
	l.mu.Lock()
	same := equality.Semantic.DeepEqual(l.route.Proxy, c.Proxy)
	l.mu.Unlock()
	if same {
		return nil
	}
	other, err := l.routeFor(c)
	if err != nil {
		return err
	}
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	utilnet.CloseIdleConnectionsFor(l.route.hub.Transport)
	l.route = other
	return nil
}

// Start lets tunnels be made until the context ends.
func (l *link) Start(ctx context.Context) error {
	l.mu.Lock()
	l.ctx = ctx
	l.run() //nolint:contextcheck // it has the context
	l.mu.Unlock()
	<-ctx.Done()
	return nil
}

// enable has a tunnel made, and again whenever it ends.
func (l *link) enable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enabled = true
	l.run()
}

// run starts once it is enabled and has a context.
func (l *link) run() {
	if !l.enabled || l.ctx == nil || l.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(l.ctx)
	l.stop = stop
	go l.keep(ctx, l.route)
}

// end ends the tunnel.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enabled = false
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
	l.connected, l.problem = false, ""
}

// state says whether there is a tunnel, and if there is none why the last attempt failed, as a condition has it. While a tunnel that has
// ended is made again, it counts as there.
func (l *link) state() (connected bool, problem string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected, l.problem
}

func (l *link) set(ctx context.Context, connected bool, err error) {
	problem := ""
	if err != nil {
		problem = text.Message(text.Stable(err.Error()))
	}
	l.mu.Lock()
	current := ctx.Err() == nil // and not one that has ended meanwhile
	changed := current && (l.connected != connected || l.problem != problem)
	if current {
		l.connected, l.problem = connected, problem
	}
	l.mu.Unlock()
	if changed {
		l.changed()
	}
}

// keep has a tunnel until the context ends. It makes the next one when that has ended, or beside it when the agent has another certificate.
func (l *link) keep(ctx context.Context, by route) {
	wait, served := firstRetry, schema.GroupVersion{}
	renewed := l.certificate.renewals(ctx)
	var current *tunnel.Tunnel
	var server *http.Server // of what comes through it
	var until time.Time     // the certificate of the current one ends
	for ctx.Err() == nil {
		next, err := l.dial(ctx, by, &served)
		if err != nil {
			// What no hub has answered may be over in a moment, and could not be reported anyway.
			reported := answered(err) || errors.Is(err, errSilent) || wait >= absentRetry
			if reported && !isOpen(current) {
				l.set(ctx, false, err)
			}
			l.sleep(ctx, wait)
			wait = longer(wait, err)
			continue
		}
		wait = firstRetry
		l.set(ctx, true, nil)
		ctrllog.FromContext(ctx).Info("Users of the hub reach the cluster through a tunnel")
		if isOpen(current) {
			go l.retire(current, server, until)
		}
		current, server, until = next, l.newServer(), l.certificate.shownUntil()
		go l.serve(ctx, current, server)
		select {
		case <-current.Done():
			l.sleep(ctx, wait)
		case <-renewed:
			utilnet.CloseIdleConnectionsFor(by.hub.Transport) // they are of the certificate before
		}
	}
}

// isOpen reports whether there is a tunnel that has not ended.
func isOpen(t *tunnel.Tunnel) bool {
	if t == nil {
		return false
	}
	select {
	case <-t.Done():
		return false
	default:
		return true
	}
}

// retire ends a tunnel whose place another one has taken. The hub may not know the other one in the first moment; then it is told to open
// no more streams, and those end that wait for a request. The tunnel is closed once nothing goes through it any more, or its certificate
// has ended.
func (l *link) retire(t *tunnel.Tunnel, server *http.Server, until time.Time) {
	defer t.Close()
	for told := false; ; told = true {
		select {
		case <-t.Done():
			return
		case <-l.clock.After(retireInterval):
		}
		if told && t.Streams() == 0 || !l.clock.Now().Before(until) {
			return
		}
		if !told {
			t.Retire()
			server.SetKeepAlivesEnabled(false)
		}
	}
}

// dial makes a tunnel, unless that takes too long. Then no connection is used again that may have died without a word.
func (l *link) dial(ctx context.Context, by route, served *schema.GroupVersion) (*tunnel.Tunnel, error) {
	within, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel() // which ends no tunnel that is made
	t, err := l.ask(within, by, served)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		utilnet.CloseIdleConnectionsFor(by.hub.Transport)
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	return t, err
}

// ask asks for a tunnel by the API that the hub has for it. It finds out which one that is, and keeps it until the hub refuses a tunnel:
// one that starts again publishes its APIs late.
func (l *link) ask(ctx context.Context, by route, served *schema.GroupVersion) (t *tunnel.Tunnel, err error) {
	if served.Empty() {
		if *served, err = api.Served(ctx, l.config, by.hub); err != nil {
			*served = schema.GroupVersion{}
			return nil, err
		}
	}
	t, err = tunnel.Dial(ctx, by.hub, l.base.JoinPath(api.Path(*served, l.cluster, api.Attach(*served))).String())
	if answered(err) {
		*served = schema.GroupVersion{}
	}
	return t, err
}

// answered reports whether it was the hub that refused a tunnel, and not a load balancer that does not reach it.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !ofLoadBalancer(err)
}

// ofLoadBalancer reports whether it was one that answered in place of the hub.
func ofLoadBalancer(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code == http.StatusBadGateway || code == http.StatusGatewayTimeout
}

func longer(wait time.Duration, err error) time.Duration {
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial":
		return min(2*wait, absentRetry)
	case isCut(err), ofLoadBalancer(err), apierrors.IsServiceUnavailable(err):
		return min(2*wait, unavailableRetry)
	}
	return min(2*wait, lastRetry)
}

// isCut reports whether a connection has ended without an answer. A timeout is none: who is too busy to answer is not to be tried more
// often.
func isCut(err error) bool {
	var network *net.OpError
	isNetwork := errors.As(err, &network) && (network.Op == "read" || network.Op == "write") && !network.Timeout()
	return isNetwork || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func (l *link) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-l.clock.After(d + rand.N(d)): //nolint:gosec // it only spreads
	}
}

// newServer returns a server for what comes through one tunnel.
func (l *link) newServer() *http.Server {
	return &http.Server{Handler: l.handler, ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0)}
}

// serve answers what comes through the tunnel until that or the context ends, and with it all that is open: a connection that was upgraded
// does not notice by itself while the cluster does not read.
func (l *link) serve(ctx context.Context, t *tunnel.Tunnel, server *http.Server) {
	open, end := context.WithCancel(context.WithoutCancel(ctx)) // with the tunnel, so that nothing is answered in place of the cluster
	defer end()
	server.BaseContext = func(net.Listener) context.Context { return open }
	defer context.AfterFunc(ctx, t.Close)()
	if err := server.Serve(t.Listener()); err != nil && !errors.Is(err, http.ErrServerClosed) {
		ctrllog.FromContext(ctx).V(1).Info("No more requests come through the tunnel", "reason", err.Error())
	}
	t.Close()
	_ = server.Close()
	ctrllog.FromContext(ctx).Info("The tunnel to the hub has ended")
}
