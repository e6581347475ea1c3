// Package broker is the gRPC server of a hub, by which agents exchange resources with it as events.
//
// An agent publishes what it wants written, and subscribes to what it wants to know of. The server has rights for all clusters, and an
// agent has those of its own: each call is for one cluster, which the event or the subscription names, and the caller needs the right for
// that there. What an event asks for is held against this cluster, whatever else its data says.
//
// Subscriptions get the state of resources, and not a history: what is queued for one is which resources have changed, once each, and each
// is read when its turn comes. So a slow subscriber costs little memory, gets nothing that is outdated, and hinders nobody.
package broker

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
)

// Service takes what agents publish about one kind of resource.
type Service interface {
	DataType() cloudevents.DataType
	// Prepare reads an event of an agent, and checks that it is about nothing but the cluster. The errors are those of the API.
	Prepare(event *cloudevents.Event, eventType cloudevents.Type, cluster string) (*Write, error)
}

// Write is what an event asks for.
type Write struct {
	// Subresource and Name are what the caller needs a right for. An empty name stands for any.
	Subresource, Name string
	// Do does it in the name of a caller who has the right.
	Do func(ctx context.Context, caller *access.Caller) error
}

// Ref identifies a resource. A resource of the same name with another UID is another one.
type Ref struct {
	Namespace, Name string
	UID             types.UID
}

// Subscriber is who gets events.
type Subscriber struct {
	Cluster, User string
}

// Source is a Service that subscribers get events of.
type Source interface {
	Service
	// Start returns when the source knows all its resources, and tells of changes from then on.
	Start(ctx context.Context) error
	// Event returns the present state of a resource for a subscriber. It is an event of the action Delete if the cluster does not have the
	// resource any more, otherwise of the given action; nil, if there is nothing to tell.
	Event(ctx context.Context, to Subscriber, ref Ref, action cloudevents.Action, now time.Time) (*cloudevents.Event, error)
}

// Catalogue is a Source whose subscribers ask for what they have missed.
type Catalogue interface {
	Source
	// Versions returns all resources of a cluster.
	Versions(ctx context.Context, cluster string) ([]Version, error)
	// Existing returns the versions of the resources of a cluster from the API itself, which knows those that this server is yet to hear of.
	Existing(ctx context.Context, cluster string) (map[types.UID]int64, error)
}

// Version is the version of a resource.
type Version struct {
	Ref
	Version  int64
	Deleting bool
	// Unreported says that the agent has not reported on this version. After a restore, it may know another one of the same number.
	Unreported bool
}

// Change says that a resource of a cluster may be another one than before.
type Change struct {
	DataType cloudevents.DataType
	Cluster  string
	// User is the only one to be told; empty stands for all subscribers.
	User   string
	Ref    Ref
	Action cloudevents.Action
}
