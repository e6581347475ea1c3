// Package delivery brings ManifestWorks to the agents of their clusters by events of a broker, and their statuses back, for agents that do
// not get works from the API of the hub. The works stay on the hub, like all others.
package delivery

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// Source is what the hub is called in events, as Open Cluster Management calls it.
const Source = "mwrsctrl"

const (
	// workers is how many works are reconciled at once: each waits for the broker.
	workers = 20
	// untilAccepted is when a work of a cluster that is cut off is reconciled again: this controller does not watch clusters.
	untilAccepted = time.Minute
)

// Transport brings events to agents, and from there.
type Transport interface {
	// Start connects until the context ends.
	Start(ctx context.Context, handlers Handlers) error
	// Send returns when the event is on its way.
	Send(ctx context.Context, event *cloudevents.Event) error
}

// Handlers are what a transport calls.
type Handlers struct {
	// Receive takes an event of an agent, with the cluster that the transport has it from. It does not wait.
	Receive func(ctx context.Context, cluster string, event *cloudevents.Event)
	// Connected is called after each time that the connection was made: what was sent in either direction before may have been lost.
	Connected func(ctx context.Context)
}

// Options configure the controller.
type Options struct {
	Transport Transport
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ManifestWorks with what agents know of them. A request without a name is for the answer to an agent that has
// requested what it does not know.
type Controller struct {
	client client.Client
	// reader reads from the API itself.
	reader    client.Reader
	transport Transport
	clock     clock.PassiveClock
	enqueued  chan event.GenericEvent

	mu sync.Mutex
	// sent has what agents were sent last. After a restart they are sent it again, and leave what they know as it is.
	sent map[types.NamespacedName]version
	// reported has the last status of each work that is still to be written.
	reported map[types.NamespacedName]*cloudevents.Event
	// resyncs has what the agent of a cluster knows, while it waits for an answer.
	resyncs map[string]cloudevents.ResourceVersions
	// unheard are the clusters of which something that the agent has said was left out, as they were cut off.
	unheard map[string]bool
}

// version is what an agent is sent of a work. Of labels and annotations, which may be as large as the work, it is a hash.
type version struct {
	uid        types.UID
	generation int64
	metadata   [sha256.Size]byte
	deleted    bool
}

// New returns a Controller that works through the client. The reader reads from the API itself.
func New(c client.Client, reader client.Reader, o Options) *Controller {
	return &Controller{client: c, reader: reader, transport: o.Transport, clock: o.Clock, enqueued: make(chan event.GenericEvent),
		sent: map[types.NamespacedName]version{}, reported: map[types.NamespacedName]*cloudevents.Event{},
		resyncs: map[string]cloudevents.ResourceVersions{}, unheard: map[string]bool{}}
}

// Register adds the controller to the manager, and has it run the transport.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetAPIReader(), o)
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return o.Transport.Start(ctx, Handlers{Receive: c.receive, Connected: c.connected})
	})); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("work-manifestwork-deliver").
		For(&workv1.ManifestWork{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: changed})).
		WatchesRawSource(source.Channel(c.enqueued, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// changed reports whether there is something new for the agent in an update: a status, which it has written, is nothing new. After a watch
// was interrupted, an update may be to another work of the same name, which must be sent to the agent.
func changed(update event.UpdateEvent) bool {
	return predicates.Recreated().Update(update) ||
		update.ObjectOld.GetGeneration() != update.ObjectNew.GetGeneration() ||
		update.ObjectOld.GetDeletionTimestamp().IsZero() != update.ObjectNew.GetDeletionTimestamp().IsZero() ||
		!equality.Semantic.DeepEqual(update.ObjectOld.GetLabels(), update.ObjectNew.GetLabels()) ||
		!equality.Semantic.DeepEqual(update.ObjectOld.GetAnnotations(), update.ObjectNew.GetAnnotations())
}

// Reconcile writes the status that the agent has reported, and sends the agent what is new. The broker knows nothing of clusters that are
// cut off: nothing goes to their agents, and nothing is taken from them. When such a cluster is accepted again, its agent is asked.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if cutOff, err := c.isCutOff(ctx, req.Namespace); err != nil {
		return ctrl.Result{}, err
	} else if cutOff {
		c.forgetReports(req.NamespacedName)
		return ctrl.Result{RequeueAfter: untilAccepted}, nil
	}
	if err := c.catchUp(ctx, req.Namespace); err != nil {
		return ctrl.Result{}, err
	}
	if req.Name == "" {
		return ctrl.Result{}, c.answer(ctx, req.Namespace)
	}
	work := &workv1.ManifestWork{}
	err := c.client.Get(ctx, req.NamespacedName, work)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, c.gone(ctx, req.NamespacedName)
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if err := c.report(ctx, work); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, c.deliver(ctx, work)
}

func (c *Controller) isCutOff(ctx context.Context, name string) (bool, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, cluster, client.UnsafeDisableDeepCopy); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return managedcluster.CutOff(cluster), nil
}

// forgetReports leaves nothing of what an agent has said while its cluster was cut off, for when it is accepted again. That there was
// something stays known.
func (c *Controller) forgetReports(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, said := c.reported[key]
	delete(c.reported, key)
	if key.Name == "" {
		_, said = c.resyncs[key.Namespace]
		delete(c.resyncs, key.Namespace)
	}
	if said {
		c.unheard[key.Namespace] = true
	}
}

// catchUp has the agent of a cluster say again what was left out while the cluster was cut off. For the broker has taken it, so that the
// agent does not: all its works are sent again, so that it reports those that it has removed, and the statuses are requested.
func (c *Controller) catchUp(ctx context.Context, cluster string) error {
	c.mu.Lock()
	unheard := c.unheard[cluster]
	delete(c.unheard, cluster)
	c.mu.Unlock()
	if !unheard {
		return nil
	}
	if err := c.askAgain(ctx, cluster); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unheard[cluster] = true
		return fmt.Errorf("ask the agent of cluster %s, which is accepted again: %w", cluster, err)
	}
	return nil
}

// deliver sends the work to the agent, unless this version was sent.
func (c *Controller) deliver(ctx context.Context, work *workv1.ManifestWork) error {
	key, now := client.ObjectKeyFromObject(work), versionOf(work)
	before, known := c.last(key)
	if known && before == now {
		return nil
	}
	if known && before.uid != now.uid {
		if err := c.gone(ctx, key); err != nil {
			return err
		}
		known = false
	}
	action := cloudevents.Update
	if !known && !now.deleted {
		action = cloudevents.Create
	}
	return c.send(ctx, action, work)
}

// gone sends the agent the end of a work that it was sent.
func (c *Controller) gone(ctx context.Context, key types.NamespacedName) error {
	c.mu.Lock()
	before, known := c.sent[key]
	delete(c.reported, key)
	c.mu.Unlock()
	if !known {
		return nil
	}
	work := &workv1.ManifestWork{}
	work.Namespace, work.Name, work.UID, work.Generation = key.Namespace, key.Name, before.uid, before.generation
	if err := c.sendEvent(ctx, cloudevents.Delete, work); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sent, key)
	return nil
}

func (c *Controller) send(ctx context.Context, action cloudevents.Action, work *workv1.ManifestWork) error {
	if err := c.sendEvent(ctx, action, work); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[client.ObjectKeyFromObject(work)] = versionOf(work)
	return nil
}

func (c *Controller) sendEvent(ctx context.Context, action cloudevents.Action, work *workv1.ManifestWork) error {
	event, err := manifestbundle.EncodeSpec(Source, action, work, c.clock.Now())
	if err != nil {
		return err
	}
	event.Extensions[cloudevents.ExtensionOriginalSource] = Source
	if err := c.transport.Send(ctx, event); err != nil {
		return fmt.Errorf("deliver ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	return nil
}

func (c *Controller) last(key types.NamespacedName) (version, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.sent[key]
	return last, known
}

func versionOf(work *workv1.ManifestWork) version {
	return version{uid: work.UID, generation: work.Generation, metadata: sha256.Sum256(fmt.Append(nil, work.Labels, work.Annotations)),
		deleted: !work.DeletionTimestamp.IsZero()}
}
