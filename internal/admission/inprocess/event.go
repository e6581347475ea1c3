package inprocess

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	rules "github.com/capstan-io/capstan/internal/admission"
)

const (
	// eventRate is how many events per second the hub accepts from a cluster over a long time, and eventBurst how many at once. Events
	// are stored for an hour.
	eventRate  = 1
	eventBurst = 200
	// eventClusters is how many clusters have a limiter. The limiter of a cluster beyond that is forgotten and starts again.
	eventClusters = 10000
)

// eventResources are the two resources of the same objects.
var eventResources = []schema.GroupResource{corev1.Resource("events"), eventsv1.Resource("events")}

// eventLimiter keeps agents from filling the storage of the hub with events. Event recorders drop events that are refused. It needs a
// memory of previous requests, so it is not a webhook.
type eventLimiter struct {
	*admission.Handler
	identifying
	clock    clock.PassiveClock
	limiters *lru.Cache
}

var _ admission.ValidationInterface = (*eventLimiter)(nil)

func newEventLimiter(opts Options) *eventLimiter {
	return &eventLimiter{Handler: writes(), identifying: newIdentifying(opts), clock: opts.Clock, limiters: lru.New(eventClusters)}
}

// Validate is called by the server.
func (p *eventLimiter) Validate(_ context.Context, request admission.Attributes, _ admission.ObjectInterfaces) error {
	if request.GetSubresource() != "" || !slices.Contains(eventResources, request.GetResource().GroupResource()) {
		return nil
	}
	sender := p.identify(request)
	if len(sender.Clusters) == 0 {
		return nil
	}
	event, err := meta.Accessor(request.GetObject())
	if err != nil {
		return fmt.Errorf("read the metadata of an event: %w", err)
	}
	old, err := replaced(request)
	if err != nil {
		return err
	}
	if err := rules.ValidateEvent(event, old, sender); err != nil {
		return err
	}
	if !p.limiter(strings.Join(sender.Clusters, ",")).TryAccept() {
		return rules.TooManyEvents(sender)
	}
	return nil
}

// limiter returns the limiter of a cluster. Of two that are created at the same time, one is kept.
func (p *eventLimiter) limiter(cluster string) flowcontrol.PassiveRateLimiter {
	if found, ok := p.limiters.Get(cluster); ok {
		return found.(flowcontrol.PassiveRateLimiter) //nolint:forcetypeassert // Nothing else is put there.
	}
	made := flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(eventRate, eventBurst, p.clock)
	p.limiters.Add(cluster, made)
	return made
}
