// Package lease is for the agents of add-ons: it tells the hub that the agent works, by a Lease beside it that it renews.
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
	// defaultInterval is how often a lease is renewed. The agent of the cluster waits for three times that, so it misses an
	// add-on within a minute.
	defaultInterval = 15 * time.Second
	// jitter keeps agents that start together from renewing together: it adds up to a quarter.
	jitter = 0.25
	// retries is how often within an interval something that failed is tried again, so that it is soon known to work.
	retries = 6
)

// Check tells whether a part of the agent works. It returns soon, at the latest when the context is done.
type Check func(ctx context.Context) error

// Options say whose lease it is. AddOn and Namespace are required.
type Options struct {
	// AddOn is the name of the add-on, and of the Lease.
	AddOn string
	// Namespace is where the agent is installed, and the Lease.
	Namespace string
	// Interval is the time between renewals, to which up to a quarter is added: at least a second; 0 means 15 seconds. The
	// lease tells it, and the add-on counts as unavailable after three times the interval without a renewal.
	Interval time.Duration
	// Checks are what has to work for the lease to be renewed.
	Checks []Check
	// Hub and Cluster are the agent's access to the hub and the name of its cluster there. With both, the Lease is in the
	// namespace of the cluster on the hub if the managed cluster has no Leases, for which the agent needs get, create and update
	// of leases there. The hub and agents of this project look at Leases on the managed cluster only: this is for hubs of which
	// others look after such Leases. Elsewhere, take another way than HealthLease for clusters without Leases.
	Hub     *rest.Config
	Cluster string
	// Clock is the source of time; nil means the machine's.
	Clock clock.Clock
}

// Updater renews the lease of an add-on. It can be added to a manager of controller-runtime.
type Updater struct {
	options Options
	leases  coordinationclient.LeaseInterface
	hub     coordinationclient.LeaseInterface
	served  func() (bool, error)
}

// New returns an Updater for the cluster that the agent runs on. It fails if an option is missing or does not fit.
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

// Start renews the lease until the context is done. What does not work is logged, and tried again.
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

// NeedLeaderElection is false: each replica of an agent tells of itself.
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
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(u.options.Interval / time.Second))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: u.options.Clock.Now()}
}

// where is the lease on the cluster, or on the hub if the cluster has none and the agent may use the hub.
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
