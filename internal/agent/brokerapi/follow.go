package brokerapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

const (
	// firstResubscription is the longest pause after a subscription that worked. Agents of a fleet do not come back at the same moment.
	firstResubscription = time.Second
	// endOfResync is how long a broker that has taken a resync request may send nothing before the end of its answer.
	endOfResync = 30 * time.Second
	// askAgainPause is the first pause after sources that have not answered yet are asked again. Each further one is twice as long.
	askAgainPause = time.Minute
	// minSilence is how long a source has to be silent at least to count as having no works: it has been asked again by then, and has had the
	// time to answer.
	minSilence = 5 * time.Minute
	// attemptTimeout is how long a reader waits for a subscription and for what the hub has.
	attemptTimeout = 30 * time.Second
)

// resubscription are the pauses between attempts that fail.
func resubscription() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Second, Factor: 5, Jitter: 1, Steps: 10, Cap: time.Minute}
}

var errNoResync = errors.New("the hub has not answered to the resync request in time")

// connection is the state of the subscription of a collection.
type connection struct {
	started bool
	// live says that the collection has what the hub has.
	live bool
	// failure is why the last attempt ended, and attempts how many have.
	failure  error
	attempts int
	retries  chan struct{}
	// subscribed is since when there is a subscription, which begins with a question to all sources; zero if there is none.
	subscribed time.Time
	// answered are the sources that have answered a resync request, and silent has one that has not, and is to be asked again.
	answered map[string]bool
	silent   chan string
	// heardFrom is when the last event of a source came, and withoutWorks are those that count as having no works, as none came for long.
	heardFrom    map[string]time.Time
	withoutWorks map[string]bool
	// markPrefix is how the marks of all resync requests begin.
	markPrefix string
	// asked has the UIDs of what the last resync request was about, as far as the hub has not sent it since.
	asked map[string]bool
}

func (c *connection) init() {
	c.retries, c.silent, c.answered = make(chan struct{}, 1), make(chan string, 1), map[string]bool{}
	c.heardFrom, c.withoutWorks = map[string]time.Time{}, map[string]bool{}
	c.markPrefix = cloudevents.EndMark + uuid.NewString() + "-"
}

func (c *connection) retryNow() {
	select {
	case c.retries <- struct{}{}:
	default:
	}
}

func (c *connection) askAgain(source string) {
	select {
	case c.silent <- source:
	default:
	}
}

// await returns when the collection has what the hub has. It fails if the next attempt to subscribe does.
func (c *collection) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, status.Error(codes.Unavailable, errNoResync.Error()))
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		c.started = true
		go c.follow(c.api.ctx) //nolint:contextcheck // the subscription outlives the reader who started it
	}
	for attempts := c.attempts; !c.live; {
		if c.attempts > attempts {
			return c.failure
		}
		c.retryNow()
		if err := c.waitForChange(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitForChange releases the lock meanwhile.
func (c *collection) waitForChange(ctx context.Context) error {
	changed := c.changed
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.api.ctx.Done():
		return context.Cause(c.api.ctx) //nolint:contextcheck // either may end first
	case <-changed:
		return nil
	}
}

// follow keeps the subscription until the context ends.
func (c *collection) follow(ctx context.Context) {
	logger := log.FromContext(ctx).WithValues("hub", c.api.Address, "dataType", c.kind.dataType.String())
	pauses, logged := resubscription(), ""
	for {
		lived, err := c.session(ctx)
		if ctx.Err() != nil {
			c.ended(ctx.Err())
			return
		}
		c.ended(err)
		pause := rand.N(firstResubscription) //nolint:gosec // it spreads requests and protects nothing
		if lived {
			pauses, logged = resubscription(), ""
		} else {
			pause = pauses.Step()
		}
		if err.Error() != logged {
			logged = err.Error()
			logger.Info("The subscription to the hub ended and is begun again", "reason", logged, "after", pause.String())
		}
		timer := c.api.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-c.retries:
		}
		timer.Stop()
	}
}

// ended records the end of an attempt. Watches go on, unless the hub refuses the agent: their clients then have to learn of that.
func (c *collection) ended(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live, c.failure, c.subscribed = false, err, time.Time{}
	c.attempts++
	if code := status.Code(err); code == codes.Unauthenticated || code == codes.PermissionDenied ||
		code == codes.Unavailable && refusesCertificate(err.Error()) {
		c.refusals++
	}
	c.notify()
}

// session subscribes, has the hub send what the collection lacks, and receives events until the subscription ends. lived reports whether
// the collection has had what the hub has.
func (c *collection) session(ctx context.Context) (lived bool, err error) {
	subscription, err := c.api.Broker.Subscribe(ctx, c.api.Cluster, c.kind.dataType)
	if err != nil {
		return false, err
	}
	defer subscription.Close()
	c.emptyHurried()
	c.forgetDeleted()
	c.began()
	subscribed, cancel := context.WithCancel(ctx)
	defer cancel()
	latest := &latestResync{}
	latest.resync = c.startResync(subscribed, subscription, latest)
	go c.repeatResync(subscribed, subscription, latest)
	for {
		event, err := subscription.Receive()
		if err != nil {
			return lived, err
		}
		c.noteSender(event)
		resync := latest.get()
		resync.hear()
		if resync.isEnd(event) {
			c.noteAnswer(event)
			c.synced(resync)
			lived = true
			c.resyncIfWanted(subscribed, subscription, latest)
			continue
		}
		if c.isEndOfEarlier(event) {
			c.noteAnswer(event)
			continue
		}
		again, err := c.handle(ctx, event)
		if err != nil {
			log.FromContext(ctx).Error(err, "An event of the hub cannot be used; it is left out", "type", event.Type)
		}
		if again {
			latest.want()
			c.resyncIfWanted(subscribed, subscription, latest)
		}
	}
}

// latestResync is the last request of a subscription.
type latestResync struct {
	mu     sync.Mutex
	resync *resync
	// wanted says that the hub has contradicted what it said before: if its answer to the last request leaves that out, nobody knows.
	wanted bool
}

func (l *latestResync) want() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
}

func (l *latestResync) get() *resync {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resync
}

// resyncAgain has the hub send what the collection lacks, unless it is about to.
func (c *collection) resyncAgain(ctx context.Context, subscription cloudevents.Subscription, latest *latestResync) {
	latest.mu.Lock()
	defer latest.mu.Unlock()
	if latest.resync.isOver() && ctx.Err() == nil {
		latest.resync, latest.wanted = c.startResync(ctx, subscription, latest), false
	}
}

// resyncIfWanted has the hub send what the collection lacks if an event has shown that it lacks something. While a request is under way,
// that waits for its end.
func (c *collection) resyncIfWanted(ctx context.Context, subscription cloudevents.Subscription, latest *latestResync) {
	latest.mu.Lock()
	wanted := latest.wanted
	latest.mu.Unlock()
	if wanted {
		c.resyncAgain(ctx, subscription, latest)
	}
}

// repeatResync asks again when a source is to answer that has not, until the context ends. All sources are asked, about all that the
// collection has: what a request leaves out is sent again. So the pauses become longer.
func (c *collection) repeatResync(ctx context.Context, subscription cloudevents.Subscription, latest *latestResync) {
	for pause := askAgainPause; ; pause *= 2 {
		select {
		case <-ctx.Done():
			return
		case source := <-c.silent:
			log.FromContext(ctx).Info("A source has not said which works it has, and is asked again; works of it that are missing are kept "+
				"until it answers, or has been silent for the grace period of evictions, and long enough to answer", "source", source,
				"againAfter", pause.String(), "longEnough", minSilence.String())
		}
		c.resyncAgain(ctx, subscription, latest)
		timer := c.api.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
}

// began records that there is a subscription.
func (c *collection) began() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribed = c.api.Clock.Now()
}

// emptyHurried forgets calls for the attempt that has just succeeded.
func (c *connection) emptyHurried() {
	select {
	case <-c.retries:
	default:
	}
}

// resync is a request to the hub for what a collection lacks. The hub answers with events, of which the last one has to be known. It says
// of each object of the request that it does not have that it is gone, after all that it has. So the request ends with an object that
// nobody has.
type resync struct {
	mark    string
	version int64 // of the store, when the request was made
	stop    context.CancelFunc
	over    <-chan struct{}
	heard   chan struct{} // has one when something came
}

func (c *collection) startResync(ctx context.Context, subscription cloudevents.Subscription, latest *latestResync) *resync {
	asking, stop := context.WithCancel(ctx)
	r := &resync{mark: c.newMark(), stop: stop, over: asking.Done(), version: c.api.versions.Load(), heard: make(chan struct{}, 1)}
	request, err := c.resyncRequest(r.mark)
	if err != nil {
		subscription.End(err)
		return r
	}
	go func() {
		err := c.api.publish(asking, request)
		switch {
		case r.isOver(): // the answer may come before the broker says that it has the request
		case err != nil:
			subscription.End(err)
		default:
			c.awaitEnd(ctx, r, subscription, latest)
		}
	}()
	return r
}

func (c *collection) newMark() string { return c.markPrefix + uuid.NewString() }

// resyncRequest is the event that asks for what the collection lacks, with a mark at its end.
func (c *collection) resyncRequest(mark string) (*cloudevents.Event, error) {
	eventType := cloudevents.Type{DataType: c.kind.dataType, SubResource: cloudevents.Spec, Action: cloudevents.Resync}
	request := cloudevents.New(c.api.Source, eventType, c.api.Clock.Now())
	request.Extensions[cloudevents.ExtensionClusterName] = c.api.Cluster
	return request, request.SetData(cloudevents.ResourceVersions{Versions: append(c.ask(), cloudevents.ResourceVersion{ResourceID: mark})})
}

// askHub has the hub send what the collection lacks, and returns when it has agreed to: once in half a minute, that takes an answer of its
// API, by which the agent may have it. A subscription alone says nothing of the API behind it.
func (c *collection) askHub(ctx context.Context) error {
	request, err := c.resyncRequest(c.newMark())
	if err != nil {
		return err
	}
	return c.api.publish(ctx, request)
}

// awaitEnd gives a resync up if nothing comes for too long, and the subscription with it, unless the collection has what the hub has. What
// was to follow the resync follows it then.
func (c *collection) awaitEnd(ctx context.Context, r *resync, subscription cloudevents.Subscription, latest *latestResync) {
	late := c.api.Clock.NewTimer(endOfResync)
	defer late.Stop()
	for {
		select {
		case <-r.over:
			return
		case <-r.heard:
			late.Reset(endOfResync)
		case <-late.C():
			r.end()
			if !c.isLive() {
				subscription.End(status.Error(codes.Unavailable, errNoResync.Error()))
				return
			}
			c.resyncIfWanted(ctx, subscription, latest)
			return
		}
	}
}

// hear notes that the hub sends something. Of an answer with many objects, each event may take a while.
func (r *resync) hear() {
	select {
	case r.heard <- struct{}{}:
	default:
	}
}

func (r *resync) isEnd(event *cloudevents.Event) bool {
	return event.Text(cloudevents.ExtensionResourceID) == r.mark
}

// isEndOfEarlier reports whether a source has answered a request that another one has followed. What it has, it has sent.
func (c *collection) isEndOfEarlier(event *cloudevents.Event) bool {
	return strings.HasPrefix(event.Text(cloudevents.ExtensionResourceID), c.markPrefix)
}

func (r *resync) end() { r.stop() }

func (r *resync) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

func (c *collection) isLive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live
}

// ask returns what a resync request says of the collection, and takes note of what it is about. Deleted objects are part of that: the hub
// sends those that it has.
func (c *collection) ask() (all []cloudevents.ResourceVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = map[string]bool{}
	for uid := range c.deleted {
		c.asked[uid] = true
	}
	for _, r := range c.records {
		if r.uid == "" {
			continue
		}
		c.asked[r.uid] = true
		version := r.generation
		if c.kind.resource != resourceWorks || r.hubVersion == unversioned {
			version, _ = strconv.ParseInt(r.hubVersion, 10, 64) // 0, which is older than any, for what is no number
		}
		all = append(all, cloudevents.ResourceVersion{ResourceID: r.uid, ResourceVersion: version})
	}
	return all
}

// noteSender takes note of when a source has sent what may be of a work. It is not away, and may have works. Sources request statuses
// whether they have any or not.
func (c *collection) noteSender(event *cloudevents.Event) {
	source := event.Text(cloudevents.ExtensionOriginalSource)
	kind, err := cloudevents.ParseType(event.Type)
	if err != nil || kind.SubResource != cloudevents.Spec || kind.Action == cloudevents.Resync || !c.api.NamesSources || source == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heardFrom[source] = c.api.Clock.Now()
	delete(c.withoutWorks, source)
}

// isSilentFor reports whether nothing has come from a source for a time, under one subscription. The caller holds the lock.
func (c *collection) isSilentFor(source string, duration time.Duration) bool {
	if c.subscribed.IsZero() {
		return false
	}
	since := c.subscribed
	if heard := c.heardFrom[source]; heard.After(since) {
		since = heard
	}
	return c.api.Clock.Since(since) >= duration
}

// noteAnswer takes note of who has answered. Others may not have.
func (c *collection) noteAnswer(end *cloudevents.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered[end.Text(cloudevents.ExtensionOriginalSource)] = true
}

// synced makes the collection readable.
func (c *collection) synced(r *resync) {
	r.end()
	c.mu.Lock()
	if err := c.confirm(r.version); err != nil {
		log.FromContext(c.api.ctx).Error(err, "What the hub does not have cannot be removed from memory")
	}
	first := !c.live
	c.live, c.failure = true, nil
	c.notify()
	c.mu.Unlock()
	if first {
		c.api.wake()
	}
}

// handle takes an event over into the collection. again is that of receive.
func (c *collection) handle(ctx context.Context, event *cloudevents.Event) (again bool, err error) {
	eventType, err := cloudevents.ParseType(event.Type)
	if err != nil {
		return false, err
	}
	switch {
	case eventType.DataType != c.kind.dataType:
		return false, nil
	case eventType.SubResource == cloudevents.Status && eventType.Action == cloudevents.Resync && c.kind.resource == resourceWorks:
		return false, c.api.answerStatusResync(ctx, c, event)
	case eventType.SubResource != cloudevents.Spec || eventType.Action == cloudevents.Resync:
		return false, nil
	case c.kind.resource == resourceWorks:
		return c.receiveWork(event, eventType.Action)
	case eventType.Action == cloudevents.Delete || len(event.Data) == 0:
		return false, c.remove(event.Text(cloudevents.ExtensionResourceID))
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if err := readObject(event, o); err != nil {
		return false, err
	}
	if c.kind.namespaced && o.GetNamespace() != c.api.Cluster ||
		!c.kind.namespaced && c.kind.resource == resourceClusters && o.GetName() != c.api.Cluster {
		return false, nil
	}
	return c.receive(o, eventType.Action, nil)
}
