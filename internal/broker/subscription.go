package broker

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
)

// How many subscriptions a user may have.
const (
	// mostSubscriptions is for one kind of one cluster. Its agent has one, and add-ons may have some.
	mostSubscriptions = 100
	// mostOfUser is for everything. Clusters that join have two each until they are accepted, and many have one bootstrap credential;
	// those of connections that have broken count for a while.
	mostOfUser = 50_000
)

// subscription is one call of Subscribe.
type subscription struct {
	id     string
	to     Subscriber
	source Source
	queue  *queue
	// review is signalled when the rights of the subscriber may have changed.
	review chan struct{}
	// ended is closed with err set.
	ended chan struct{}
	once  sync.Once
	err   error
}

func newSubscription(to Subscriber, source Source) *subscription {
	return &subscription{id: uuid.NewString(), to: to, source: source, queue: newQueue(), review: make(chan struct{}, 1),
		ended: make(chan struct{})}
}

// end ends the call with an error.
func (s *subscription) end(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.ended)
	})
}

// notify queues a resource. A subscriber that has fallen too far behind is cut off: when it comes again, it asks for what it has missed.
func (s *subscription) notify(ref Ref, action cloudevents.Action) {
	if s.queue.put(ref, action) != nil {
		s.end(status.Errorf(codes.ResourceExhausted, "%d resources wait to be received; subscribe again, and ask for a resync", mostPending))
	}
}

// enqueueAll queues resources, each as soon as there is room.
func (s *subscription) enqueueAll(ctx context.Context, refs []Ref, action cloudevents.Action) error {
	for _, ref := range refs {
		for full := s.queue.put(ref, action); full != nil; full = s.queue.put(ref, action) {
			select {
			case <-full:
			case <-s.ended:
				return s.err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// send sends what is queued, and heartbeats, until the context ends.
func (b *Broker) send(ctx context.Context, s *subscription, stream grpc.ServerStreamingServer[pb.CloudEvent]) error {
	var beat <-chan struct{}
	if b.Heartbeat > 0 {
		ticks := make(chan struct{})
		beat = ticks
		go b.tick(ctx, ticks)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-beat:
			if err := b.sendHeartbeat(stream); err != nil {
				return err
			}
			continue
		default:
		}
		ref, action, ok := s.queue.take()
		if ok {
			if err := b.sendOne(ctx, s, stream, ref, action); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.queue.filled:
		case <-beat:
			if err := b.sendHeartbeat(stream); err != nil {
				return err
			}
		}
	}
}

// tick hands over a tick for each heartbeat that is due.
func (b *Broker) tick(ctx context.Context, ticks chan<- struct{}) {
	ticker := b.Clock.NewTicker(b.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		select {
		case <-ctx.Done():
			return
		case ticks <- struct{}{}:
		}
	}
}

func (b *Broker) sendHeartbeat(stream grpc.ServerStreamingServer[pb.CloudEvent]) error {
	beat := &cloudevents.Event{ID: uuid.NewString(), Source: cloudevents.SourceHub, Type: cloudevents.Heartbeat, Time: b.Clock.Now()}
	message, err := beat.ToProto()
	if err != nil {
		return err
	}
	return stream.Send(message)
}

func (b *Broker) sendOne(ctx context.Context, s *subscription, stream grpc.ServerStreamingServer[pb.CloudEvent], ref Ref,
	action cloudevents.Action) error {
	event, err := s.source.Event(ctx, s.to, ref, action, b.Clock.Now())
	if err != nil || event == nil {
		return err
	}
	message, err := event.ToProto()
	if err != nil {
		return err
	}
	if err := stream.Send(message); err != nil {
		return err
	}
	sent.WithLabelValues(s.source.DataType().String()).Inc()
	return nil
}

// supervise waits until the subscription is to end, and returns why. The right to it is reviewed every so often.
func (b *Broker) supervise(ctx context.Context, s *subscription, sending <-chan error, needed access.Attributes) error {
	ticker := b.Clock.NewTicker(b.Access.Period())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.stopped:
			return status.Error(codes.Unavailable, "the server ends; subscribe to another one")
		case <-s.ended:
			return s.err
		case err := <-sending:
			return subscriptionError(err)
		case <-s.review:
		case <-ticker.C():
		}
		if err := b.check(ctx, s, needed); err != nil {
			return err
		}
	}
}

// check fails if the subscriber has lost the right to the subscription. While the hub does not answer, nothing changes.
func (b *Broker) check(ctx context.Context, s *subscription, needed access.Attributes) error {
	caller, err := b.Access.Authenticate(ctx)
	if err == nil {
		if caller.Username != s.to.User {
			return status.Errorf(codes.PermissionDenied, "the credential is now one of %q, and was one of %q", caller.Username, s.to.User)
		}
		err = b.checkPermitted(ctx, s, caller, needed)
	}
	if status.Code(err) == codes.Unavailable {
		return nil
	}
	return err
}

// subscriptionError is what ends a subscription by a failure to send.
func subscriptionError(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Errorf(codes.Internal, "read what is to be sent: %v", err)
}
