package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Options configure a [Broker].
type Options struct {
	Access *access.Reviewer
	// Heartbeat is how often subscribers are told that the server is there; 0 stands for never.
	Heartbeat time.Duration
	Clock     clock.WithTicker
}

// Broker takes and delivers events.
type Broker struct {
	pb.UnimplementedCloudEventServiceServer
	Options
	services map[cloudevents.DataType]Service
	registry registry
	resyncs  turns
	stop     sync.Once
	stopped  chan struct{}
}

// New returns a Broker without services.
func New(o Options) *Broker {
	return &Broker{Options: o, services: map[cloudevents.DataType]Service{},
		registry: newRegistry(), resyncs: newTurns(), stopped: make(chan struct{})}
}

// Serve adds services. It is called before the first call of a client.
func (b *Broker) Serve(services ...Service) {
	for _, service := range services {
		b.services[service.DataType()] = service
	}
}

// Stop ends all subscriptions.
func (b *Broker) Stop() { b.stop.Do(func() { close(b.stopped) }) }

// Notify tells the subscribers of a change. It never waits for one.
func (b *Broker) Notify(change Change) {
	for _, s := range b.registry.of(topic{change.DataType, change.Cluster}, change.User) {
		s.notify(change.Ref, change.Action)
	}
}

// Review has the rights of those who act for a cluster reviewed at once.
func (b *Broker) Review(cluster string) {
	b.Access.Forget(cluster)
	for dataType := range b.services {
		for _, s := range b.registry.of(topic{dataType, cluster}, "") {
			select {
			case s.review <- struct{}{}:
			default:
			}
		}
	}
}

// Publish implements pb.CloudEventServiceServer.
func (b *Broker) Publish(ctx context.Context, request *pb.PublishRequest) (*emptypb.Empty, error) {
	call := startCall(methodPublish, b.Clock)
	err := b.publish(ctx, request, call)
	call.end(err)
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

func (b *Broker) publish(ctx context.Context, request *pb.PublishRequest, call *call) error {
	caller, err := b.Access.Authenticate(ctx)
	if err != nil {
		return err
	}
	event, err := cloudevents.FromProto(request.GetEvent())
	if err != nil {
		return badRequest("%v", err)
	}
	eventType, err := cloudevents.ParseType(event.Type)
	if err != nil {
		return badRequest("event %s: %v", event.ID, err)
	}
	cluster := event.Text(cloudevents.ExtensionClusterName)
	if problem := checkCluster(cluster); problem != "" {
		return badRequest("event %s: extension %s is %q: %s", event.ID, cloudevents.ExtensionClusterName, cluster, problem)
	}
	service, err := b.service(eventType.DataType)
	if err != nil {
		return badRequest("event %s: %v", event.ID, err)
	}
	call.about(eventType.DataType)
	if eventType.Action == cloudevents.Resync {
		return b.resync(ctx, caller, service, event, eventType, cluster)
	}
	write, err := service.Prepare(event, eventType, cluster)
	if err != nil {
		return cloudevents.PublishError(err)
	}
	needed := attributes(eventType.DataType, verbs[eventType.Action], cluster)
	if write.Subresource != "" {
		needed.Subresource = write.Subresource
	}
	if write.Name != "" {
		needed.Name = write.Name
	}
	if err := b.authorize(ctx, caller, needed); err != nil {
		return err
	}
	if err := write.Do(ctx, caller); err != nil {
		return cloudevents.PublishError(err)
	}
	return nil
}

func badRequest(format string, args ...any) error {
	return cloudevents.PublishError(apierrors.NewBadRequest(fmt.Sprintf(format, args...)))
}

// checkCluster returns what is wrong with the name of a cluster, which is that of a namespace.
func checkCluster(name string) string { return strings.Join(validation.IsDNS1123Label(name), "; ") }

func (b *Broker) service(dataType cloudevents.DataType) (Service, error) {
	service, known := b.services[dataType]
	if !known {
		names := []string{}
		for one := range maps.Keys(b.services) {
			names = append(names, one.String())
		}
		slices.Sort(names)
		return nil, fmt.Errorf("the hub has no data type %s; use one of %s", dataType, strings.Join(names, ", "))
	}
	return service, nil
}

// verbs are those of RBAC for what events ask for.
var verbs = map[cloudevents.Action]string{
	cloudevents.Create: "create", cloudevents.Update: "update", cloudevents.Delete: "delete",
}

// attributes are what a right is needed for, by data type: for the resource of the API behind it, in the namespace of the cluster.
func attributes(dataType cloudevents.DataType, verb, cluster string) access.Attributes {
	needed := access.Attributes{Cluster: cluster, ResourceAttributes: authorizationv1.ResourceAttributes{
		Verb: verb, Namespace: cluster, Group: dataType.Group, Version: dataType.Version, Resource: dataType.Resource,
	}}
	switch dataType {
	case cloudevents.ManagedClusters:
		needed.Name = cluster
	case cloudevents.ManifestBundles:
		needed.Group, needed.Version, needed.Resource = "work.open-cluster-management.io", "v1", "manifestworks"
	case cloudevents.TokenRequests:
		needed.Group, needed.Version, needed.Resource, needed.Subresource = "", "v1", "serviceaccounts", "token"
	}
	return needed
}

// authorize fails if the caller may not do what is needed. RBAC has rights to certificate requests of all clusters or of none, so agents
// are held to those of their own cluster here. Who joins is in no cluster yet.
func (b *Broker) authorize(ctx context.Context, caller *access.Caller, needed access.Attributes) error {
	clusters := fleet.AgentClusters(caller.Groups)
	if needed.Resource == cloudevents.SigningRequests.Resource && len(clusters) > 0 && !slices.Contains(clusters, needed.Cluster) {
		return status.Errorf(codes.PermissionDenied, "user %q may not %s: it is an agent of cluster %q, and has certificate requests of that "+
			"cluster alone", caller.Username, needed, strings.Join(clusters, " "))
	}
	return b.Access.Authorize(ctx, caller, needed)
}

// resyncTimeout is how long an answer to a resync request may take to be queued, after others of the same user. Agents wait half as long.
const resyncTimeout = 30 * time.Second

// bounded returns a context that ends after the resyncTimeout.
func (b *Broker) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := b.Clock.NewTimer(resyncTimeout)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel(status.Errorf(codes.ResourceExhausted, "the resync request is not answered after %s, or the answer not received", resyncTimeout))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// resync queues what a subscriber says that it has not got. The data of a request, which may be large, is decoded when it is its turn.
func (b *Broker) resync(ctx context.Context, caller *access.Caller, service Service, event *cloudevents.Event, eventType cloudevents.Type,
	cluster string) error {
	catalogue, ok := service.(Catalogue)
	if !ok || eventType.SubResource != cloudevents.Spec {
		return badRequest("event %s: there is no resync of the %s of %s", event.ID, eventType.SubResource, eventType.DataType)
	}
	permitted, err := b.permitted(ctx, caller, catalogue, attributes(eventType.DataType, "list", cluster))
	if err != nil {
		return err
	}
	if named, ok := permitted.(*worksByName); ok {
		catalogue = named
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	done, err := b.resyncs.take(ctx, asker{topic{eventType.DataType, cluster}, caller.Username})
	if err != nil {
		return err
	}
	defer done()
	known := cloudevents.ResourceVersions{}
	if err := event.ReadData(&known); err != nil {
		return badRequest("%v", err)
	}
	subscribers := b.registry.of(topic{eventType.DataType, cluster}, caller.Username)
	if len(subscribers) == 0 {
		return cloudevents.PublishError(apierrors.NewServiceUnavailable(fmt.Sprintf(
			"user %q has no subscription to %s of cluster %q with this server, which would get the answer; subscribe first, by the same connection",
			caller.Username, eventType.DataType, cluster)))
	}
	changed, gone, err := missed(ctx, catalogue, cluster, known.Versions)
	if _, ofGRPC := status.FromError(err); err != nil && ofGRPC {
		return err
	} else if err != nil {
		return cloudevents.PublishError(err)
	}
	for _, s := range subscribers {
		if err := s.enqueueAll(ctx, changed, cloudevents.ResyncResponse); err != nil {
			return err
		}
		if err := s.enqueueAll(ctx, gone, cloudevents.Delete); err != nil {
			return err
		}
	}
	return nil
}

// missed returns what is not known in its present version, or being deleted, and what is known and does not exist any more. A server that
// has just begun to read may not have heard yet of a resource that exists, or of its latest version, so the API itself is asked about
// those. A resource that has an earlier version there than is known is from a backup. The mark at the end of a request is gone after all
// others.
func missed(ctx context.Context, catalogue Catalogue, cluster string, known []cloudevents.ResourceVersion) (changed, gone []Ref,
	err error) {
	if err := catalogue.Start(ctx); err != nil {
		return nil, nil, err
	}
	versions, err := catalogue.Versions(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	unknown, marks := make(map[string]int64, len(known)), []Ref{}
	for _, one := range known {
		if strings.HasPrefix(one.ResourceID, cloudevents.EndMark) {
			marks = append(marks, Ref{UID: types.UID(one.ResourceID)})
			continue
		}
		unknown[one.ResourceID] = one.ResourceVersion
	}
	ahead := map[types.UID]Ref{}
	for _, version := range versions {
		at, has := unknown[string(version.UID)]
		switch {
		case has && !version.Deleting && at > version.Version:
			ahead[version.UID] = version.Ref
			continue
		case !has || version.Deleting || version.Unreported || at < version.Version:
			changed = append(changed, version.Ref)
		}
		delete(unknown, string(version.UID))
	}
	switch strange := len(unknown) - len(ahead); {
	case strange > mostPending:
		return nil, nil, status.Errorf(codes.ResourceExhausted, "the resync request has %d resources of cluster %q that the hub does not know, "+
			"and may have %d", strange, cluster, mostPending)
	case len(unknown) == 0:
		return changed, marks, nil
	}
	existing, err := catalogue.Existing(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(unknown)) {
		version, exists := existing[types.UID(id)]
		ref, isAhead := ahead[types.UID(id)]
		switch {
		case !exists:
			gone = append(gone, Ref{UID: types.UID(id)})
		case isAhead && version < unknown[id]:
			changed = append(changed, ref)
		}
	}
	return changed, append(gone, marks...), nil
}

// Subscribe implements pb.CloudEventServiceServer.
func (b *Broker) Subscribe(request *pb.SubscriptionRequest, stream grpc.ServerStreamingServer[pb.CloudEvent]) error {
	call := startCall(methodSubscribe, b.Clock)
	err := b.subscribe(request, stream, call)
	call.end(err)
	return err
}

func (b *Broker) subscribe(request *pb.SubscriptionRequest, stream grpc.ServerStreamingServer[pb.CloudEvent], call *call) error {
	ctx := stream.Context()
	caller, err := b.Access.Authenticate(ctx)
	if err != nil {
		return err
	}
	source, err := b.source(request)
	if err != nil {
		return err
	}
	call.about(source.DataType())
	verb := "watch"
	if source.DataType() == cloudevents.TokenRequests {
		verb = fleet.VerbSubscribe
	}
	needed := attributes(source.DataType(), verb, request.GetClusterName())
	if source, err = b.permitted(ctx, caller, source, needed); err != nil {
		return err
	}
	if err := source.Start(ctx); err != nil {
		return unreadableNow(err)
	}
	s := newSubscription(Subscriber{Cluster: request.GetClusterName(), User: caller.Username}, source)
	if err := b.registry.add(s); err != nil {
		return err
	}
	defer b.registry.remove(s)
	open := subscribers.WithLabelValues(source.DataType().String())
	open.Inc()
	defer open.Dec()
	if err := stream.SendHeader(metadata.Pairs(cloudevents.HeaderSubscriptionID, s.id)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sending := make(chan error, 1)
	// It may be blocked by a client that does not read, and ends with the call.
	go func() { sending <- b.send(ctx, s, stream) }()
	return b.supervise(ctx, s, sending, needed)
}

// source returns what a subscription asks for.
func (b *Broker) source(request *pb.SubscriptionRequest) (Source, error) {
	if request.GetSource() != "" {
		return nil, status.Errorf(codes.InvalidArgument, "source is %q, and subscriptions to statuses are not served: leave it out",
			request.GetSource())
	}
	if problem := checkCluster(request.GetClusterName()); problem != "" {
		return nil, status.Errorf(codes.InvalidArgument, "cluster_name is %q: %s", request.GetClusterName(), problem)
	}
	dataType, err := cloudevents.ParseDataType(request.GetDataType())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "data_type: %v", err)
	}
	service, err := b.service(dataType)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "data_type: %v", err)
	}
	source, ok := service.(Source)
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "data_type: there is nothing to receive of %s; agents only publish it", dataType)
	}
	return source, nil
}
