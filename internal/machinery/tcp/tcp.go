// Package tcp connects clients to servers that have several addresses, as the replicas of a hub behind one name have, and ends connections
// to one whose machine has gone without closing them.
package tcp

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
)

const (
	// attemptDelay is how long an address may take to answer before the next one is tried beside it (RFC 8305, section 5).
	attemptDelay = 250 * time.Millisecond
	// connectTimeout is how long a connection may take, whatever the number of addresses. It is that of client-go.
	connectTimeout = 30 * time.Second
	// keepAlive is how often a silent connection is tried that is not probed, as client-go does it.
	keepAlive = 30 * time.Second
	// userTimeout is how long data may wait for its acknowledgement on a connection that is probed: as long as Probes take.
	userTimeout = 3 * time.Second
)

// Probes have the kernel try a silent connection each second, and end it after three seconds in which nothing has come. The kernel of the
// other end answers, however busy its process is. On a connection with data that is not acknowledged there are none.
var Probes = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}

// Dialer connects to a server by TCP. Its zero value is ready.
type Dialer struct {
	// Probe has a connection to one of several replicas end three seconds after its machine has gone, so that the client connects to another
	// one: by Probes, and on Linux also while data waits for its acknowledgement. It is for servers that read all the time, as those of HTTP/2
	// and tunnels do: one that leaves off reading for three seconds, until no more can be sent, counts as gone. A host has replicas if it has
	// several addresses of a family. To one without, connections are not probed: there would be nowhere else to go.
	Probe bool

	turns turns
}

// Use has the clients of a configuration connect by the Dialer, unless the configuration says how they connect. Clients of one
// configuration share a connection only if they share an http.Client then.
func (d *Dialer) Use(config *rest.Config) {
	if config.Dial == nil {
		config.Dial = d.DialContext
	}
}

// DialContext connects to HOST:PORT. It tries the addresses of the host, IPv6 and IPv4 in turn: the next one as soon as one fails, or has
// not answered for 250 ms. The first connection is taken, and other attempts end. If the host has replicas, each connection begins at
// another address than the one before; else they are in the order of the resolver. The error says of each address that was tried why it
// cannot be reached.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel() // which does not end a connection
	single := &net.Dialer{KeepAlive: keepAlive}
	if hasNoName(address) {
		return single.DialContext(ctx, network, address)
	}
	r := racer{lookup: net.DefaultResolver.LookupNetIP, single: single.DialContext, probe: d.Probe, turns: &d.turns, choose: rand.IntN}
	return r.dial(ctx, network, address)
}

// hasNoName reports whether an address is that of a single server without a lookup: an IP address, perhaps with a zone, or none, which is
// this machine.
func hasNoName(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err == nil || host == ""
}

// racer connects to the first address of a host that answers.
type racer struct {
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	// single connects to one address.
	single func(ctx context.Context, network, address string) (net.Conn, error)
	probe  bool
	turns  *turns
	// choose returns a number below n.
	choose func(n int) int
}

func (r racer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	found, port, err := r.resolve(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	replicas := haveReplicas(found)
	if replicas {
		found = r.turns.begin(found, r.choose)
	}
	var addresses []string
	for _, ip := range alternate(found) {
		addresses = append(addresses, net.JoinHostPort(ip.String(), port))
	}
	conn, err := r.race(ctx, network, addresses)
	if err == nil && r.probe && replicas {
		probe(conn)
	}
	return conn, err
}

// resolve returns the addresses of a host, in the order of the resolver, and the port.
func (r racer) resolve(ctx context.Context, network, address string) (found []netip.Addr, port string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	found, err = r.lookup(ctx, "ip"+strings.TrimPrefix(network, "tcp"), host)
	if err != nil {
		return nil, "", err
	}
	if len(found) == 0 {
		return nil, "", &net.DNSError{Err: "the host has no address", Name: host, IsNotFound: true}
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, port, nil
}

// haveReplicas reports whether addresses are of more than one machine: one may have an address of each family.
func haveReplicas(found []netip.Addr) bool {
	first, second := families(found)
	return sets.New(first...).Len() > 1 || sets.New(second...).Len() > 1
}

// families returns the addresses of the family of the first one, and those of the other.
func families(found []netip.Addr) (first, second []netip.Addr) {
	for _, ip := range found {
		if ip.Is4() == found[0].Is4() {
			first = append(first, ip)
		} else {
			second = append(second, ip)
		}
	}
	return first, second
}

// alternate takes an address of each family in turn, beginning with that of the first.
func alternate(found []netip.Addr) (all []netip.Addr) {
	first, second := families(found)
	for len(first) > 0 {
		all = append(all, first[0])
		first, second = second, first[1:]
	}
	return append(all, second...)
}

// turns has each connection to a host begin at another address than the one before. A connection that is made says that a kernel answers:
// the process may hang, or the address be that of another machine by now, and then a client has to come to another replica next.
type turns struct {
	mu sync.Mutex
	// last is the address at which the last connection began.
	last netip.Addr
}

// begin returns the addresses from the one on that follows the last: by their values, as a resolver may turn its answers around itself.
// With none to follow, it begins anywhere in the family that the resolver prefers, so that clients spread over the replicas.
func (t *turns) begin(found []netip.Addr, choose func(n int) int) []netip.Addr {
	first, second := families(found)
	first, second = inOrder(first), inOrder(second)
	all := slices.Concat(first, second)
	t.mu.Lock()
	defer t.mu.Unlock()
	next := choose(len(first))
	if last := slices.Index(all, t.last); last >= 0 {
		next = (last + 1) % len(all)
	}
	t.last = all[next]
	return slices.Concat(all[next:], all[:next])
}

// inOrder returns each address once, in the order of their values.
func inOrder(found []netip.Addr) []netip.Addr {
	return slices.Compact(slices.SortedFunc(slices.Values(found), netip.Addr.Compare))
}

// probe has a connection end three seconds after the other end has gone. What fails leaves the connection to the keepalives that it had.
func probe(conn net.Conn) {
	connection, is := conn.(*net.TCPConn)
	if !is {
		return
	}
	_ = connection.SetKeepAliveConfig(Probes)
	if raw, err := connection.SyscallConn(); err == nil {
		setUserTimeout(raw)
	}
}

// attempt is how a connection to an address went.
type attempt struct {
	conn net.Conn
	err  error
}

func (r racer) race(ctx context.Context, network string, addresses []string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the attempts that have not succeeded
	ended := make(chan attempt)
	delay := time.NewTimer(attemptDelay)
	defer delay.Stop()
	pending := 0
	next := func() {
		if len(addresses) == 0 || pending > 0 && ctx.Err() != nil {
			return
		}
		address := addresses[0]
		addresses = addresses[1:]
		pending++
		delay.Reset(attemptDelay)
		go func() {
			conn, err := r.single(ctx, network, address)
			ended <- attempt{conn, err}
		}()
	}
	var failed failures
	for next(); pending > 0; {
		select {
		case <-delay.C:
			next()
		case last := <-ended:
			pending--
			if last.err == nil {
				go closeLate(ended, pending)
				return last.conn, nil
			}
			failed = append(failed, last.err)
			next()
		}
	}
	return nil, failed.join()
}

// closeLate closes connections that are made although another one was taken.
func closeLate(ended <-chan attempt, pending int) {
	for range pending {
		if late := <-ended; late.err == nil {
			_ = late.conn.Close()
		}
	}
}

// failures are the errors of all addresses that were tried.
type failures []error

func (f failures) join() error {
	if len(f) == 1 {
		return f[0]
	}
	return f
}

// Error implements error.
func (f failures) Error() string {
	var texts []string
	for _, err := range f {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all of them.
func (f failures) Unwrap() []error { return f }

// Timeout says that no address has answered.
func (f failures) Timeout() bool {
	return !slices.ContainsFunc(f, func(err error) bool {
		var failure net.Error
		return !errors.As(err, &failure) || !failure.Timeout()
	})
}
