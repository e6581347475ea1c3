package broker

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// worksByName are the works that the agent of a denied cluster is to finish: it may neither list nor watch any, and get each of these by
// its name. The others are kept from it. Existing has them all, so that none is said to be gone that is not.
type worksByName struct {
	Catalogue
	mayGet func(ctx context.Context, name string) (bool, error)
}

// Versions implements Catalogue.
func (w *worksByName) Versions(ctx context.Context, cluster string) ([]Version, error) {
	all, err := w.Catalogue.Versions(ctx, cluster)
	if err != nil {
		return nil, err
	}
	var allowed []Version
	for _, version := range all {
		may, err := w.mayGet(ctx, version.Name)
		if err != nil {
			return nil, err
		}
		if may {
			allowed = append(allowed, version)
		}
	}
	return allowed, nil
}

// Event implements Source. That a work is gone is no secret: who has not known it is told its name, and nothing else.
func (w *worksByName) Event(ctx context.Context, to Subscriber, ref Ref, action cloudevents.Action, now time.Time) (*cloudevents.Event,
	error) {
	event, err := w.Catalogue.Event(ctx, to, ref, action, now)
	if err != nil || event == nil || isDeletion(event) {
		return event, err
	}
	if may, err := w.mayGet(ctx, ref.Name); err != nil || !may {
		return nil, err
	}
	return event, nil
}

func isDeletion(event *cloudevents.Event) bool {
	eventType, err := cloudevents.ParseType(event.Type)
	return err == nil && eventType.Action == cloudevents.Delete
}

// permitted returns what the caller may get of a source: everything, if it has the right that is needed for that, or works by name. It
// fails if that is nothing.
func (b *Broker) permitted(ctx context.Context, caller *access.Caller, source Source, needed access.Attributes) (Source, error) {
	denied := b.authorize(ctx, caller, needed)
	if status.Code(denied) != codes.PermissionDenied {
		return source, denied
	}
	// Each work costs a question to the API. So nobody may ask but the agent of the cluster.
	catalogue, ok := source.(Catalogue)
	if !ok || source.DataType() != cloudevents.ManifestBundles || !slices.Contains(fleet.AgentClusters(caller.Groups), needed.Cluster) {
		return nil, denied
	}
	named := &worksByName{Catalogue: catalogue, mayGet: func(ctx context.Context, name string) (bool, error) {
		get := attributes(source.DataType(), "get", needed.Cluster)
		get.Name = name
		err := b.authorize(ctx, caller, get)
		if status.Code(err) == codes.PermissionDenied {
			return false, nil
		}
		return err == nil, err
	}}
	if err := named.Start(ctx); err != nil {
		return nil, unreadableNow(err)
	}
	versions, err := named.Versions(ctx, needed.Cluster)
	switch {
	case err != nil:
		return nil, unreadableNow(err)
	case len(versions) == 0:
		return nil, denied
	}
	return named, nil
}

func unreadableNow(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Errorf(codes.Unavailable, "the hub cannot be read now: %v", err)
}

// checkPermitted fails if a subscription is not for what its user may get by now.
func (b *Broker) checkPermitted(ctx context.Context, s *subscription, caller *access.Caller, needed access.Attributes) error {
	all, byName := s.source, false
	if named, ok := s.source.(*worksByName); ok {
		all, byName = named.Catalogue, true
	}
	permitted, err := b.permitted(ctx, caller, all, needed)
	if err != nil {
		return err
	}
	if _, now := permitted.(*worksByName); now != byName {
		return status.Errorf(codes.Aborted, "user %q may get other %s of cluster %q than before; subscribe again", caller.Username,
			needed.Resource, needed.Cluster)
	}
	return nil
}
