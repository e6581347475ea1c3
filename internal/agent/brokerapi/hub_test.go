package brokerapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/brokerclient"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const testCluster = "cluster1"

// testHub is a broker with objects in memory.
type testHub struct {
	pb.UnimplementedCloudEventServiceServer
	ca, certificate, key []byte

	mu        sync.Mutex
	address   string
	server    *grpc.Server
	objects   map[cloudevents.DataType]map[string]client.Object // by UID
	version   int
	streams   map[*testStream]bool
	published []*cloudevents.Event
	subs      map[cloudevents.DataType]int
	refuse    func(*cloudevents.Event) error // of events; nil for a resync request has no meaning
	refuseAll error                          // of subscriptions
	mute      bool                           // changes are not sent
	resyncs   []cloudevents.ResourceVersions
}

type testStream struct {
	dataType cloudevents.DataType
	send     chan *cloudevents.Event
}

func newTestHub(t *testing.T) *testHub {
	t.Helper()
	h := &testHub{objects: map[cloudevents.DataType]map[string]client.Object{}, streams: map[*testStream]bool{}, version: 100,
		subs: map[cloudevents.DataType]int{}, address: "127.0.0.1:0"}
	var err error
	if h.certificate, h.key, err = cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil); err != nil {
		t.Fatal(err)
	}
	h.ca = h.certificate
	h.start(t)
	t.Cleanup(h.stop)
	return h
}

func (h *testHub) start(t *testing.T) {
	t.Helper()
	pair, err := tls.X509KeyPair(h.certificate, h.key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.address = listener.Addr().String()
	h.server = grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	pb.RegisterCloudEventServiceServer(h.server, h)
	go func() { _ = h.server.Serve(listener) }()
}

func (h *testHub) stop() { h.server.Stop() }

// api returns an API of a cluster of the hub, and a client of it.
func (h *testHub) api(t *testing.T) (*API, client.WithWatch) {
	t.Helper()
	return h.apiUntil(t.Context(), t)
}

func (h *testHub) apiUntil(ctx context.Context, t *testing.T) (*API, client.WithWatch) {
	t.Helper()
	broker, err := brokerclient.New(ctx, fleet.AgentUserAgent, &grpcconfig.Config{URL: h.address, Token: "t", CAData: h.ca})
	if err != nil {
		t.Fatal(err)
	}
	a := New(ctx, Options{Broker: broker, Address: h.address, Cluster: testCluster, Source: testCluster, Clock: clock.RealClock{}})
	c, err := hubclient.New(a.Config())
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

// put stores an object, with a new version, and notifies subscribers.
func (h *testHub) put(dataType cloudevents.DataType, o client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.putLocked(dataType, o)
}

func (h *testHub) putLocked(dataType cloudevents.DataType, o client.Object) {
	if o.GetUID() == "" {
		o.SetUID(types.UID(uuid.NewString()))
	}
	h.version++
	o.SetResourceVersion(strconv.Itoa(h.version))
	if h.objects[dataType] == nil {
		h.objects[dataType] = map[string]client.Object{}
	}
	h.objects[dataType][string(o.GetUID())] = o
	if !h.mute {
		h.notify(dataType, encode(dataType, cloudevents.Update, o))
	}
}

// restore has the hub have objects as they were, and no others. It notifies nobody.
func (h *testHub) restore(dataType cloudevents.DataType, backup ...client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects[dataType] = map[string]client.Object{}
	for _, o := range backup {
		h.objects[dataType][string(o.GetUID())] = o
	}
}

// send notifies subscribers of an object, whatever the hub has.
func (h *testHub) send(dataType cloudevents.DataType, action cloudevents.Action, o client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notify(dataType, encode(dataType, action, o))
}

// restart ends all subscriptions, does something meanwhile, and serves again.
func (h *testHub) restart(t *testing.T, dataType cloudevents.DataType, meanwhile func()) {
	t.Helper()
	h.stop()
	eventually(t, "the subscription has ended", func() bool { return !h.isSubscribed(dataType) })
	meanwhile()
	h.start(t)
}

func (h *testHub) remove(dataType cloudevents.DataType, uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.objects[dataType], string(uid))
	if !h.mute {
		h.notify(dataType, gone(dataType, string(uid)))
	}
}

func (h *testHub) notify(dataType cloudevents.DataType, event *cloudevents.Event) {
	for s := range h.streams {
		if s.dataType == dataType {
			s.send <- event
		}
	}
}

func encode(dataType cloudevents.DataType, action cloudevents.Action, o client.Object) (event *cloudevents.Event) {
	var err error
	if work, ok := o.(*workv1.ManifestWork); ok {
		event, err = manifestbundle.EncodeSpec("hub", action, work, time.Now())
	} else {
		event, err = resource.Encode("hub", cloudevents.Type{DataType: dataType, SubResource: cloudevents.Spec, Action: action}, testCluster, o, time.Now())
	}
	if err != nil {
		panic(err)
	}
	return event
}

func gone(dataType cloudevents.DataType, uid string) *cloudevents.Event {
	event := cloudevents.New("hub", cloudevents.Type{DataType: dataType, SubResource: cloudevents.Spec, Action: cloudevents.Delete}, time.Now())
	event.Extensions[cloudevents.ExtensionClusterName] = testCluster
	event.Extensions[cloudevents.ExtensionResourceID] = uid
	return event
}

func (h *testHub) get(dataType cloudevents.DataType, name string) client.Object {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.objects[dataType] {
		if o.GetName() == name {
			return o
		}
	}
	return nil
}

// Publish implements pb.CloudEventServiceServer.
func (h *testHub) Publish(_ context.Context, r *pb.PublishRequest) (*emptypb.Empty, error) {
	event, err := cloudevents.FromProto(r.GetEvent())
	if err != nil {
		return nil, err
	}
	eventType, err := cloudevents.ParseType(event.Type)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if eventType.Action == cloudevents.Resync {
		return &emptypb.Empty{}, h.resync(event, eventType.DataType)
	}
	h.published = append(h.published, event)
	if h.refuse != nil {
		if err := h.refuse(event); err != nil {
			return nil, err
		}
	}
	if err := h.write(event, eventType); err != nil {
		return nil, cloudevents.PublishError(err)
	}
	return &emptypb.Empty{}, nil
}

func (h *testHub) write(event *cloudevents.Event, eventType cloudevents.Type) error {
	switch eventType.DataType {
	case cloudevents.ManifestBundles:
		sent, err := manifestbundle.DecodeStatus(event)
		if err != nil {
			return err
		}
		known, ok := h.objects[eventType.DataType][string(sent.UID)].(*workv1.ManifestWork)
		if !ok {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "manifestworks"}, string(sent.UID))
		}
		known = known.DeepCopy()
		known.Status = sent.Status
		if !slices.Contains(known.Finalizers, finalizer) {
			known.Finalizers = append(known.Finalizers, finalizer)
		}
		h.objects[eventType.DataType][string(sent.UID)] = known // agents are not notified
		return nil
	case cloudevents.TokenRequests:
		answer := encodeRaw(eventType, event)
		h.notify(eventType.DataType, answer)
		return nil
	case cloudevents.Events:
		return nil
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(event.Data, &o.Object); err != nil {
		return err
	}
	if eventType.Action == cloudevents.Update {
		known := h.objects[eventType.DataType][string(o.GetUID())]
		if known == nil || known.GetResourceVersion() != o.GetResourceVersion() {
			return apierrors.NewConflict(schema.GroupResource{Resource: eventType.Resource}, o.GetName(), errVersionPending)
		}
	}
	h.putLocked(eventType.DataType, o)
	return nil
}

func encodeRaw(eventType cloudevents.Type, event *cloudevents.Event) *cloudevents.Event {
	answer := cloudevents.New("hub", eventType, time.Now())
	answer.Extensions[cloudevents.ExtensionResourceID] = event.Text(cloudevents.ExtensionResourceID)
	o := map[string]any{}
	_ = json.Unmarshal(event.Data, &o)
	o["status"] = map[string]any{"token": "secret", "expirationTimestamp": "2030-01-01T00:00:00Z"}
	_ = answer.SetData(o)
	return answer
}

// resync answers as a broker does: what has another version than is known, and then what is gone, in the order of IDs.
func (h *testHub) resync(event *cloudevents.Event, dataType cloudevents.DataType) error {
	known := cloudevents.ResourceVersions{}
	if err := event.ReadData(&known); err != nil {
		return err
	}
	h.resyncs = append(h.resyncs, known)
	has := map[string]int64{}
	for _, one := range known.Versions {
		has[one.ResourceID] = one.ResourceVersion
	}
	for uid, o := range h.objects[dataType] {
		version, _ := resource.Version(o)
		if work, ok := o.(*workv1.ManifestWork); ok {
			version = work.Generation
		}
		if at, knows := has[uid]; !knows || version != at || o.GetDeletionTimestamp() != nil {
			h.notify(dataType, encode(dataType, cloudevents.ResyncResponse, o))
		}
		delete(has, uid)
	}
	ids := []string{}
	for uid := range has {
		ids = append(ids, uid)
	}
	slices.Sort(ids)
	for _, uid := range ids {
		h.notify(dataType, gone(dataType, uid))
	}
	return nil
}

// Subscribe implements pb.CloudEventServiceServer.
func (h *testHub) Subscribe(r *pb.SubscriptionRequest, stream grpc.ServerStreamingServer[pb.CloudEvent]) error {
	dataType, err := cloudevents.ParseDataType(r.GetDataType())
	if err != nil || r.GetSource() != "" || r.GetClusterName() != testCluster {
		return status.Errorf(codes.InvalidArgument, "%v, %v", r, err)
	}
	s := &testStream{dataType: dataType, send: make(chan *cloudevents.Event, 10000)}
	h.mu.Lock()
	h.subs[dataType]++
	if h.refuseAll != nil {
		defer h.mu.Unlock()
		return h.refuseAll
	}
	h.streams[s] = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.streams, s)
	}()
	if err := stream.SendHeader(metadata.Pairs(cloudevents.HeaderSubscriptionID, uuid.NewString())); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case event := <-s.send:
			message, err := event.ToProto()
			if err != nil {
				return err
			}
			if err := stream.Send(message); err != nil {
				return err
			}
		}
	}
}

func (h *testHub) isSubscribed(dataType cloudevents.DataType) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		if s.dataType == dataType {
			return true
		}
	}
	return false
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("%s: not after a minute", what)
		case <-tick.C:
		}
	}
}

var _ runtime.Object = &workv1.ManifestWork{}
