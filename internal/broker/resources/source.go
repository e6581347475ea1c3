// Package resources has the kinds of resources that a hub exchanges with its agents by gRPC: what agents get to know, and what they may
// write, of each.
//
// The server writes with its own rights, which are those for all clusters. So it takes nothing of what an agent sends but the parts that
// the agent may write, of objects that are its cluster's by their name or namespace.
package resources

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
)

// source has the resources of one kind, read from a cache that begins when somebody wants to know of them.
type source struct {
	Options
	dataType cloudevents.DataType
	kind     schema.GroupVersionKind
	empty    func() client.Object
	list     func() client.ObjectList
	// clusterOf returns the cluster that an object is of; an empty name, if it is of none.
	clusterOf func(client.Object) string
	// ofCluster selects the objects of a cluster, by a selector that both a cache and the API take.
	ofCluster func(cluster string) []client.ListOption
	// same tells whether a change is none that subscribers are told of; nil stands for a change of anything.
	same   func(before, now client.Object) bool
	encode func(action cloudevents.Action, cluster string, object client.Object, now time.Time) (*cloudevents.Event, error)
	// version is as in events.
	version func(metav1.Object) (int64, error)
	// unreported tells whether the agent has not reported on the version; nil stands for kinds that agents do not report on.
	unreported func(client.Object) bool

	mu      sync.Mutex
	started bool
}

// asItIs is how objects are encoded that are delivered as they are.
func asItIs(dataType cloudevents.DataType) func(cloudevents.Action, string, client.Object, time.Time) (*cloudevents.Event, error) {
	return func(action cloudevents.Action, cluster string, object client.Object, now time.Time) (*cloudevents.Event, error) {
		return resource.Encode(cloudevents.SourceHub, typeOf(dataType, action), cluster, object, now)
	}
}

func typeOf(dataType cloudevents.DataType, action cloudevents.Action) cloudevents.Type {
	return cloudevents.Type{DataType: dataType, SubResource: cloudevents.Spec, Action: action}
}

func inNamespace(cluster string) []client.ListOption {
	return []client.ListOption{client.InNamespace(cluster)}
}

func namespaceOf(object client.Object) string { return object.GetNamespace() }

// DataType implements broker.Service.
func (s *source) DataType() cloudevents.DataType { return s.dataType }

// Start implements broker.Source.
func (s *source) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return nil
	}
	informer, err := s.Cache.GetInformer(ctx, s.empty())
	if err != nil {
		return fmt.Errorf("read %s: %w", s.dataType, err)
	}
	if _, err := informer.AddEventHandler(s.handler()); err != nil {
		return fmt.Errorf("follow %s: %w", s.dataType, err)
	}
	s.started = true
	return nil
}

// handler tells of changes. What is there at first, subscribers ask for.
func (s *source) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if object, ok := o.(client.Object); ok && !initial {
				s.notify(s.clusterOf(object), object, cloudevents.Create)
			}
		},
		UpdateFunc: func(o, n any) {
			before, ok := o.(client.Object)
			now, too := n.(client.Object)
			if !ok || !too || before.GetResourceVersion() == now.GetResourceVersion() {
				return
			}
			was, is := s.clusterOf(before), s.clusterOf(now)
			if was != is || before.GetUID() != now.GetUID() {
				s.notify(was, before, cloudevents.Delete)
			} else if s.same != nil && s.same(before, now) {
				return
			}
			s.notify(is, now, cloudevents.Update)
		},
		DeleteFunc: func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if object, ok := o.(client.Object); ok {
				s.notify(s.clusterOf(object), object, cloudevents.Delete)
			}
		},
	}
}

func (s *source) notify(cluster string, object client.Object, action cloudevents.Action) {
	if cluster != "" {
		s.Notify(broker.Change{DataType: s.dataType, Cluster: cluster, Ref: refOf(object), Action: action})
	}
}

func refOf(object client.Object) broker.Ref {
	return broker.Ref{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
}

// Event implements broker.Source.
func (s *source) Event(ctx context.Context, to broker.Subscriber, ref broker.Ref, action cloudevents.Action,
	now time.Time) (*cloudevents.Event,
	error) {
	if ref.Name == "" {
		return s.unknown(to.Cluster, ref, now), nil
	}
	object := s.empty()
	err := s.Cache.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err), err == nil && (object.GetUID() != ref.UID || s.clusterOf(object) != to.Cluster):
		gone := s.empty()
		gone.SetNamespace(ref.Namespace)
		gone.SetName(ref.Name)
		gone.SetUID(ref.UID)
		return s.encode(cloudevents.Delete, to.Cluster, gone, now)
	case err != nil:
		return nil, fmt.Errorf("read %s %s/%s: %w", s.kind.Kind, ref.Namespace, ref.Name, err)
	}
	if action == cloudevents.Delete {
		action = cloudevents.Update // it was of this cluster, was not, and is again
	}
	return s.encode(action, to.Cluster, object, now)
}

// unknown is the event for what an agent knows of and the hub does not.
func (s *source) unknown(cluster string, ref broker.Ref, now time.Time) *cloudevents.Event {
	event := cloudevents.New(cloudevents.SourceHub, typeOf(s.dataType, cloudevents.Delete), now)
	event.Extensions[cloudevents.ExtensionClusterName] = cluster
	event.Extensions[cloudevents.ExtensionResourceID] = string(ref.UID)
	event.Extensions[cloudevents.ExtensionDeletedAt] = now
	return event
}

// Versions implements broker.Catalogue.
func (s *source) Versions(ctx context.Context, cluster string) ([]broker.Version, error) {
	list := s.list()
	if err := s.Cache.List(ctx, list, append(s.ofCluster(cluster), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list the %s of cluster %s: %w", s.dataType.Resource, cluster, err)
	}
	var versions []broker.Version
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok || s.clusterOf(object) != cluster {
			return nil
		}
		version, err := s.version(object)
		if err != nil {
			return err
		}
		versions = append(versions, broker.Version{Ref: refOf(object), Version: version, Deleting: object.GetDeletionTimestamp() != nil,
			Unreported: s.unreported != nil && s.unreported(object)})
		return nil
	})
	return versions, err
}

// Existing implements broker.Catalogue.
func (s *source) Existing(ctx context.Context, cluster string) (map[types.UID]int64, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(s.kind.GroupVersion().WithKind(s.kind.Kind + "List"))
	if err := s.Reader.List(ctx, list, s.ofCluster(cluster)...); err != nil {
		return nil, fmt.Errorf("list the %s of cluster %s: %w", s.dataType.Resource, cluster, err)
	}
	existing := make(map[types.UID]int64, len(list.Items))
	for i := range list.Items {
		version, err := s.version(&list.Items[i])
		if err != nil {
			return nil, err
		}
		existing[list.Items[i].UID] = version
	}
	return existing, nil
}

// Options are what the kinds need.
type Options struct {
	// Cache is what is read for subscribers.
	Cache cache.Cache
	// Client writes, and reads from Cache.
	Client client.Client
	// Reader reads from the API.
	Reader client.Reader
	// Notify tells subscribers of a change.
	Notify func(broker.Change)
	// Review has the rights of those who act for a cluster reviewed.
	Review func(cluster string)
}

// check refuses what is not about the cluster, or has a name that none of its kind has.
func check(dataType cloudevents.DataType, cluster, namespace, name string) error {
	switch {
	case namespace != cluster:
		return forbidden(dataType, name, "metadata.namespace is %q; an event for cluster %q is about its own namespace", namespace, cluster)
	default:
		return checkName(dataType, name)
	}
}
