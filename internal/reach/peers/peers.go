// Package peers is for a hub of several processes, where an agent has its tunnel to one of them and requests come to any: they find each
// other by Leases, and a process opens streams in the tunnels of the others.
package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

const (
	// renewInterval is how often a process renews its Lease.
	renewInterval = 10 * time.Second
	// silentFor is how long a Lease counts that is not renewed. A process that ends deletes its own.
	silentFor = 40 * time.Second
	// forgottenAfter is when the Lease of another process, which has not ended in order, is deleted.
	forgottenAfter = 10 * time.Minute
	// dialTimeout is how long all others have to open a stream, and connectTimeout how long one may take to answer that it listens.
	dialTimeout    = 5 * time.Second
	connectTimeout = 2 * time.Second
	// trustFor is how long it takes at most until the credential and the CA are those that there are now. Where a process shows a
	// certificate that the CA does not verify, it is doubtedFor: anybody may show one whose address is in a Lease.
	trustFor   = time.Minute
	doubtedFor = time.Second
)

// ErrNotThere says that no other process has a tunnel to a cluster.
var ErrNotThere = errors.New("no other process of the hub has a tunnel to the cluster")

// Options say how the processes of a hub find each other.
type Options struct {
	// Version is that of the resource managedclusters.
	Version schema.GroupVersion
	// Address is HOST:PORT at which the others reach this process.
	Address string
	// Namespace of the Leases. Who may write them there says where connections go, and gets nothing by that: see Access.
	Namespace string
	// User is as whom the API of the hub knows all of its processes, and nobody else.
	User string
	// Access is that to a process of the hub, under the name and CA that all have, as User, who may create managedclusters/stream. The
	// address of the Lease is dialled instead of its host.
	Access func(context.Context) (*rest.Config, error)
	// Clock is the source of time; nil means the system clock.
	Clock clock.WithTicker
}

// Peers are the other processes of a hub. Make them with New, and Run them.
type Peers struct {
	Options

	mu sync.Mutex
	// seen has when the Lease of each address was last seen to be renewed, by the clock of this process.
	seen map[string]sighting

	dialers dialers
}

// sighting is what is known of another process.
type sighting struct {
	lease, version string
	renewed        metav1.MicroTime
	observed       time.Time
}

// New returns the peers of a process.
func New(o Options) *Peers {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Peers{Options: o, seen: map[string]sighting{}, dialers: dialers{of: map[string]*dialer{}}}
}

// Run announces this process to the others, and finds them, until the context ends. The client is for the Leases.
func (p *Peers) Run(ctx context.Context, client kubernetes.Interface) error {
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(p.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = fleet.LabelTunnelServer + "=" + fleet.LabelTrue }),
	).Coordination().V1().Leases().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, _ bool) { p.observe(o) },
		UpdateFunc: func(_, o any) { p.observe(o) },
		DeleteFunc: p.forget,
	})
	if err != nil {
		return err
	}
	own := lease.NewController(p.Clock, client, p.Address, int32(silentFor/time.Second), nil, renewInterval, LeaseOf(p.Address), p.Namespace,
		func(l *coordinationv1.Lease) error {
			l.Labels = map[string]string{fleet.LabelTunnelServer: fleet.LabelTrue}
			return nil
		})
	var all sync.WaitGroup
	all.Go(func() { informer.RunWithContext(ctx) })
	all.Go(func() { own.Run(ctx) })
	all.Go(func() { p.clean(ctx, client) })
	all.Wait()
	own.Stop() // deletes the Lease
	return nil
}

// LeaseOf is the name of the Lease of the process at an address.
func LeaseOf(address string) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(address))
	return fmt.Sprintf("capstan-tunnels-%016x", hash.Sum64())
}

func (p *Peers) observe(object any) {
	l, ok := object.(*coordinationv1.Lease)
	if !ok || l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || *l.Spec.HolderIdentity == p.Address {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, known := p.seen[*l.Spec.HolderIdentity]
	if !known || !s.renewed.Equal(l.Spec.RenewTime) {
		s = sighting{lease: l.Name, renewed: *l.Spec.RenewTime, observed: p.Clock.Now()}
	}
	s.version = l.ResourceVersion
	p.seen[*l.Spec.HolderIdentity] = s
}

func (p *Peers) forget(object any) {
	if unknown, missed := object.(cache.DeletedFinalStateUnknown); missed {
		object = unknown.Obj
	}
	l, ok := object.(*coordinationv1.Lease)
	if !ok || l.Spec.HolderIdentity == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, *l.Spec.HolderIdentity)
}

// live are the addresses of the others.
func (p *Peers) live() (addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, s := range p.seen {
		if p.Clock.Since(s.observed) < silentFor {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// clean deletes Leases that are not renewed any more.
func (p *Peers) clean(ctx context.Context, client kubernetes.Interface) {
	ticker := p.Clock.NewTicker(forgottenAfter)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			p.deleteSilent(ctx, client)
		}
	}
}

// deleteSilent leaves a Lease that has been renewed and whose renewal is yet to be observed: this process may have been stopped, and not
// the others.
func (p *Peers) deleteSilent(ctx context.Context, client kubernetes.Interface) {
	for _, s := range p.silent() {
		err := client.CoordinationV1().Leases(p.Namespace).Delete(ctx, s.lease,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &s.version}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Delete the Lease of a process that has gone", "lease", s.lease)
		}
	}
}

// silent are the Leases that have not been renewed for a long time.
func (p *Peers) silent() (found []sighting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.seen {
		if p.Clock.Since(s.observed) >= forgottenAfter {
			found = append(found, s)
		}
	}
	return found
}

// Dial opens a stream to the agent of a cluster in the tunnel of another process. It fails with ErrNotThere if none has one.
func (p *Peers) Dial(ctx context.Context, cluster string) (net.Conn, error) {
	addresses := p.live()
	if len(addresses) == 0 {
		return nil, ErrNotThere
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel() // which ends no stream that is open
	access, err := p.dialers.renew(ctx, p, trustFor)
	if err != nil {
		return nil, err
	}
	answers := make(chan answer, len(addresses))
	for _, address := range addresses {
		go func() {
			conn, err := p.dial(ctx, access, address, cluster)
			answers <- answer{conn, err}
		}()
	}
	return first(answers, len(addresses))
}

type answer struct {
	conn net.Conn
	err  error
}

// first returns the first stream of so many answers, and closes others.
func first(answers <-chan answer, count int) (net.Conn, error) {
	var problems []error
	for got := 1; got <= count; got++ {
		a := <-answers
		if a.err == nil {
			go func() {
				for range count - got {
					if late := <-answers; late.err == nil {
						_ = late.conn.Close()
					}
				}
			}()
			return a.conn, nil
		}
		if !apierrors.IsNotFound(a.err) {
			problems = append(problems, a.err)
		}
	}
	if len(problems) == 0 {
		return nil, ErrNotThere
	}
	return nil, fmt.Errorf("%w: %w", ErrNotThere, errors.Join(problems...))
}

// dial connects through one process, and once more if that has a certificate which only the CA that there is now verifies. The error is
// NotFound if it has no tunnel to the cluster.
func (p *Peers) dial(ctx context.Context, access *rest.Config, address, cluster string) (net.Conn, error) {
	conn, err := p.dialWith(ctx, access, address, cluster)
	if !errors.As(err, new(*tls.CertificateVerificationError)) {
		return conn, err
	}
	current, renewErr := p.dialers.renew(ctx, p, doubtedFor)
	if renewErr != nil || current == access {
		return nil, err
	}
	return p.dialWith(ctx, current, address, cluster)
}

func (p *Peers) dialWith(ctx context.Context, access *rest.Config, address, cluster string) (net.Conn, error) {
	d, err := p.dialers.get(access, address)
	if err != nil {
		return nil, err
	}
	url := d.base.JoinPath(api.Path(p.Version, cluster, fleet.SubresourceStream)).String()
	conn, err := tunnel.Upgrade(ctx, d.client, url, api.ProtocolStream)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("ask the process at %s for cluster %s: %w", address, cluster, err)
	}
	return conn, err
}
