// Package lease is for the agents of add-ons. It reports that the agent works, by a Lease next to the agent that it renews.
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

const (
	// defaultInterval is how often a lease is renewed. The agent of the cluster waits three times as long, so it notices within a minute
	// when the agent stops.
	defaultInterval = 15 * time.Second
	// jitter spreads the renewals of agents that start together: it adds up to a quarter of the interval.
	jitter = 0.25
	// retries is how often within an interval a failed renewal is tried again.
	retries = 6
)

// Check returns nil if a part of the agent works. It has to return soon, and when the context is done.
type Check func(ctx context.Context) error

// Options configure an Updater. AddOn and Namespace are required.
type Options struct {
	// AddOn is the name of the add-on, and of the Lease.
	AddOn string
	// Namespace is the namespace of the agent, and of the Lease.
	Namespace string
	// Interval is the time between renewals, to which up to a quarter is added. It is at least a second; 0 means 15 seconds. The Lease
	// records it, and the add-on counts as unavailable after three intervals without a renewal.
	Interval time.Duration
	// Checks have to succeed for the lease to be renewed.
	Checks []Check
	// Hub and Cluster are the agent's access to the hub, and the name of its cluster there. With both, on a managed cluster without the
	// Lease API, the Lease is in the namespace of the cluster on the hub; the agent needs the rights to get, create and update leases
	// there. The hub and the agents of this project only read Leases on the managed cluster: this is for other hubs. With the hub of this
	// project, use another mode than HealthLease for clusters without the Lease API.
	Hub     *rest.Config
	Cluster string
	// Clock is the source of time; nil means the system clock.
	Clock clock.Clock
}

// Updater renews the lease of an add-on. It can be added to a manager of controller-runtime.
type Updater struct {
	options Options
	leases  coordinationclient.LeaseInterface
	hub     coordinationclient.LeaseInterface
	served  func() (bool, error)
}

// New returns an Updater for the cluster that the agent runs on. It fails if an option is missing or invalid.
func New(cluster *rest.Config, o Options) (*Updater, error) {
	if o.AddOn == "" || o.Namespace == "" {
		return nil, errors.New("lease: Options need AddOn, the name of the add-on, and Namespace, where its agent is installed")
	}
	if (o.Hub == nil) != (o.Cluster == "") {
		return nil, errors.New("lease: Options need Hub and Cluster together, or neither")
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.Interval < time.Second {
		return nil, fmt.Errorf("lease: the Interval is %s, and has to be a second or more", o.Interval)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	own, err := coordinationclient.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("lease: reach the cluster: %w", err)
	}
	u := &Updater{options: o, leases: own.Leases(o.Namespace)}
	if o.Hub == nil {
		return u, nil
	}
	if err := forwardproxy.CheckCredential(o.Hub); err != nil {
		return nil, fmt.Errorf("lease: reach the hub: %w", err)
	}
	hub, err := coordinationclient.NewForConfig(o.Hub)
	if err != nil {
		return nil, fmt.Errorf("lease: reach the hub: %w", err)
	}
	resources, err := discovery.NewDiscoveryClientForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("lease: reach the cluster: %w", err)
	}
	u.hub = hub.Leases(o.Cluster)
	u.served = func() (bool, error) {
		_, err := resources.ServerResourcesForGroupVersion(coordinationv1.SchemeGroupVersion.String())
		return err == nil, ignoreNotFound(err)
	}
	return u, nil
}

// Start renews the lease until the context is done. Errors are logged, and the renewal is tried again.
func (u *Updater) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithValues("addOn", u.options.AddOn)
	for {
		next := wait.Jitter(u.options.Interval, jitter)
		if err := u.renew(ctx); err != nil {
			next = u.options.Interval / retries
			if ctx.Err() == nil {
				logger.Error(err, "The lease of the add-on is not renewed")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-u.options.Clock.After(next):
		}
	}
}

// NeedLeaderElection returns false: each replica of an agent reports on its own.
func (u *Updater) NeedLeaderElection() bool { return false }

func (u *Updater) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, u.options.Interval)
	defer cancel()
	for i, check := range u.options.Checks {
		if err := check(ctx); err != nil {
			return fmt.Errorf("check %d: %w", i, err)
		}
	}
	leases, err := u.where()
	if err != nil {
		return err
	}
	lease, err := leases.Get(ctx, u.options.AddOn, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: u.options.AddOn}}
		u.set(lease)
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else if err == nil {
		u.set(lease)
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew Lease %s: %w", u.options.AddOn, err)
	}
	return nil
}

func (u *Updater) set(lease *coordinationv1.Lease) {
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(u.options.Interval / time.Second)) //nolint:gosec // it fits unless the interval is 68 years
	lease.Spec.RenewTime = &metav1.MicroTime{Time: u.options.Clock.Now()}
}

// where returns the client for leases on the cluster, or for those on the hub if the cluster has no Lease API and the agent has access
// to the hub.
func (u *Updater) where() (coordinationclient.LeaseInterface, error) {
	if u.hub == nil {
		return u.leases, nil
	}
	served, err := u.served()
	if err != nil {
		return nil, fmt.Errorf("find out whether the cluster has Leases: %w", err)
	}
	if served {
		return u.leases, nil
	}
	return u.hub, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
