package broker_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
)

// tokenReviews knows users by tokens that are their names, with a group behind a plus sign.
type tokenReviews struct {
	authenticationclient.TokenReviewInterface
}

func (tokenReviews) Create(_ context.Context, review *authenticationv1.TokenReview,
	_ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	if user, known := strings.CutPrefix(review.Spec.Token, "user:"); known {
		name, group, _ := strings.Cut(user, "+")
		review.Status.Authenticated, review.Status.User.Username, review.Status.User.Groups = true, name, []string{group}
	}
	return review, nil
}

// rights let the agent of a cluster do everything there, and everybody with certificate requests, which are in no namespace, until they are
// denied. Who is denied may still do everything by the names of remaining.
type rights struct {
	authorizationclient.SubjectAccessReviewInterface
	mu        sync.Mutex
	asked     []authorizationv1.ResourceAttributes
	denied    map[string]bool
	remaining []string
}

func (r *rights) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (
	*authorizationv1.SubjectAccessReview, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, *review.Spec.ResourceAttributes)
	user, _, _ := strings.Cut(review.Spec.User, "-")
	attributes := review.Spec.ResourceAttributes
	allowed := user == attributes.Namespace || attributes.Resource == "certificatesigningrequests"
	review.Status.Allowed = allowed && (!r.denied[review.Spec.User] || slices.Contains(r.remaining, attributes.Name))
	return review, nil
}

func (r *rights) deny(user string, remaining ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied[user], r.remaining = true, remaining
}

func (r *rights) accept(user string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.denied, user)
}

// works is a source of resources that a test sets.
type works struct {
	dataType cloudevents.DataType
	mu       sync.Mutex
	versions map[string][]broker.Version
	existing map[types.UID]int64
	listed   int // how often the API itself was asked
	wrote    []string
	err      error
	// asking has one for each question to the API, which waits for answer then; nil stands for no wait.
	asking, answer chan struct{}
}

func (w *works) DataType() cloudevents.DataType { return w.dataType }

func (w *works) Prepare(event *cloudevents.Event, _ cloudevents.Type, cluster string) (*broker.Write, error) {
	return &broker.Write{Subresource: "status", Do: func(_ context.Context, caller *access.Caller) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wrote = append(w.wrote, fmt.Sprintf("%s %s by %s", event.Text("resourceid"), cluster, caller.Username))
		return w.err
	}}, nil
}

func (w *works) Start(context.Context) error { return nil }

func (w *works) Event(_ context.Context, to broker.Subscriber, ref broker.Ref, action cloudevents.Action,
	now time.Time) (*cloudevents.Event,
	error) {
	event := cloudevents.New("kube", cloudevents.Type{DataType: w.dataType, SubResource: cloudevents.Spec, Action: action}, now)
	event.Extensions["clustername"], event.Extensions["resourceid"] = to.Cluster, string(ref.UID)
	return event, nil
}

func (w *works) Versions(_ context.Context, cluster string) ([]broker.Version, error) {
	return w.versions[cluster], nil
}

func (w *works) Existing(context.Context, string) (map[types.UID]int64, error) {
	if w.asking != nil {
		w.asking <- struct{}{}
		<-w.answer
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed++
	return w.existing, nil
}

// server is a broker with a client to it.
type server struct {
	*broker.Broker
	works  *works
	rights *rights
	client pb.CloudEventServiceClient
}

func start(t *testing.T, c clock.WithTicker, heartbeat time.Duration) *server {
	t.Helper()
	s := &server{works: &works{dataType: cloudevents.ManifestBundles, versions: map[string][]broker.Version{}},
		rights: &rights{denied: map[string]bool{}}}
	s.Broker = broker.New(broker.Options{Heartbeat: heartbeat, Clock: c, Access: access.New(access.Options{
		Tokens: tokenReviews{}, Access: s.rights, ClientCAs: x509.NewCertPool,
		NotBefore: func(context.Context, string) (time.Time, error) { return time.Time{}, nil }, Clock: c,
	})})
	s.Serve(s.works)
	listener := bufconn.Listen(1 << 20)
	g := grpc.NewServer()
	pb.RegisterCloudEventServiceServer(g, s.Broker)
	go g.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(g.Stop)
	connection, err := grpc.NewClient("passthrough:hub", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	s.client = pb.NewCloudEventServiceClient(connection)
	return s
}

func as(ctx context.Context, user string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer user:"+user)
}

// subscribe returns when the subscription has begun.
func (s *server) subscribe(t *testing.T, user, cluster string) grpc.ServerStreamingClient[pb.CloudEvent] {
	t.Helper()
	stream := s.trySubscribe(t, user, cluster, cloudevents.ManifestBundles)
	header, err := stream.Header()
	if err != nil || len(header.Get("subscription-id")) != 1 {
		t.Fatalf("header %v, %v", header, err)
	}
	return stream
}

func (s *server) trySubscribe(t *testing.T, user, cluster string, dataType cloudevents.DataType) grpc.ServerStreamingClient[pb.CloudEvent] {
	t.Helper()
	stream, err := s.client.Subscribe(as(t.Context(), user), &pb.SubscriptionRequest{ClusterName: cluster, DataType: dataType.String()})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func (s *server) publish(t *testing.T, user, cluster string, action cloudevents.Action, data any) error {
	t.Helper()
	subResource := cloudevents.Status
	if action == cloudevents.Resync {
		subResource = cloudevents.Spec
	}
	eventType := cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: subResource, Action: action}
	return s.publishAs(t, user, cluster, eventType, data)
}

func (s *server) publishAs(t *testing.T, user, cluster string, eventType cloudevents.Type, data any) error {
	t.Helper()
	event := cloudevents.New(user, eventType, time.Now())
	event.Extensions["clustername"], event.Extensions["resourceid"] = cluster, "w"
	if err := event.SetData(data); err != nil {
		t.Fatal(err)
	}
	message, err := event.ToProto()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.client.Publish(as(t.Context(), user), &pb.PublishRequest{Event: message})
	return err
}

// next returns the next event as ACTION UID.
func next(t *testing.T, stream grpc.ServerStreamingClient[pb.CloudEvent]) string {
	t.Helper()
	message, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	event, err := cloudevents.FromProto(message)
	if err != nil {
		t.Fatal(err)
	}
	if event.Type == cloudevents.Heartbeat {
		return "heartbeat"
	}
	eventType, err := cloudevents.ParseType(event.Type)
	if err != nil {
		t.Fatal(err)
	}
	return string(eventType.Action) + " " + event.Text("resourceid")
}

func change(cluster, uid string) broker.Change {
	return broker.Change{DataType: cloudevents.ManifestBundles, Cluster: cluster, Action: cloudevents.Update,
		Ref: broker.Ref{Namespace: cluster, Name: uid, UID: types.UID(uid)}}
}

// GR-04 GR-07: a subscriber gets the header, and then what changes of its cluster, and nothing of others.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	s := start(t, clock.RealClock{}, 0)
	c1, c2 := s.subscribe(t, "c1", "c1"), s.subscribe(t, "c2", "c2")
	s.Notify(change("c1", "a"))
	s.Notify(change("c2", "b"))
	s.Notify(change("c1", "c"))
	if got := []string{next(t, c1), next(t, c1), next(t, c2)}; !slices.Equal(got, []string{"update_request a", "update_request c",
		"update_request b"}) {
		t.Errorf("got %v", got)
	}
	for _, asked := range s.rights.asked {
		if asked.Verb != "watch" || asked.Group != "work.open-cluster-management.io" || asked.Resource != "manifestworks" {
			t.Errorf("asked for %+v", asked)
		}
	}
}

// GR-04 O12: a change that concerns one user alone is sent to no other one of the cluster.
func TestNotifyOneUser(t *testing.T) {
	t.Parallel()
	s := start(t, clock.RealClock{}, 0)
	one, other := s.subscribe(t, "c1-a", "c1"), s.subscribe(t, "c1-b", "c1")
	secret := change("c1", "secret")
	secret.User = "c1-a"
	s.Notify(secret)
	s.Notify(change("c1", "all"))
	if got := []string{next(t, one), next(t, one), next(t, other)}; !slices.Equal(got,
		[]string{"update_request secret", "update_request all", "update_request all"}) {
		t.Errorf("got %v", got)
	}
}

// GR-06 GR-07: no call without a valid credential, none for another cluster, and none that names none.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, clock.RealClock{}, 0)
	bundles := cloudevents.ManifestBundles.String()
	for name, test := range map[string]struct {
		authorization []string
		request       *pb.SubscriptionRequest
		want          codes.Code
	}{
		"nobody":      {nil, &pb.SubscriptionRequest{ClusterName: "c1", DataType: bundles}, codes.Unauthenticated},
		"wrong token": {[]string{"Bearer nothing"}, &pb.SubscriptionRequest{ClusterName: "c1", DataType: bundles}, codes.Unauthenticated},
		"no bearer":   {[]string{"Basic user:c1"}, &pb.SubscriptionRequest{ClusterName: "c1", DataType: bundles}, codes.Unauthenticated},
		"two tokens": {[]string{"Bearer user:c2", "Bearer user:c1"}, &pb.SubscriptionRequest{ClusterName: "c1", DataType: bundles},
			codes.Unauthenticated},
		"another cluster": {[]string{"Bearer user:c2"}, &pb.SubscriptionRequest{ClusterName: "c1", DataType: bundles}, codes.PermissionDenied},
		"no cluster":      {[]string{"Bearer user:c1"}, &pb.SubscriptionRequest{DataType: bundles}, codes.InvalidArgument},
		"a slash":         {[]string{"Bearer user:c1"}, &pb.SubscriptionRequest{ClusterName: "c1/x", DataType: bundles}, codes.InvalidArgument},
		"a source": {[]string{"Bearer user:c1"}, &pb.SubscriptionRequest{Source: "s", ClusterName: "c1", DataType: bundles},
			codes.InvalidArgument},
		"no such data":     {[]string{"Bearer user:c1"}, &pb.SubscriptionRequest{ClusterName: "c1", DataType: "a.v1.b"}, codes.InvalidArgument},
		"no type of data":  {[]string{"Bearer user:c1"}, &pb.SubscriptionRequest{ClusterName: "c1"}, codes.InvalidArgument},
		"upper-case names": {[]string{"Bearer user:c1"}, &pb.SubscriptionRequest{ClusterName: "C1", DataType: bundles}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			for _, value := range test.authorization {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", value)
			}
			stream, err := s.client.Subscribe(ctx, test.request)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); status.Code(err) != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	if err := s.publish(t, "c2", "c1", cloudevents.Update, struct{}{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the agent of c2 publishes for c1: %v", err)
	}
	if len(s.works.wrote) > 0 {
		t.Errorf("written: %v", s.works.wrote)
	}
}

// RBAC gives an agent the certificate requests of all clusters, and the server those of its own. Who joins has them for any cluster, as
// on the API, by the name of the cluster.
func TestRequestsOfOtherClusters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		user    string
		cluster string
		want    codes.Code
	}{
		"its own":            {"c1-a+system:open-cluster-management:c1", "c1", codes.OK},
		"of another":         {"c1-a+system:open-cluster-management:c1", "c2", codes.PermissionDenied},
		"its own, by AWS":    {"c1-a+open-cluster-management:c1", "c1", codes.OK},
		"of another, by AWS": {"c1-a+open-cluster-management:c1", "c2", codes.PermissionDenied},
		"of who joins":       {"joiner+system:bootstrappers:managedcluster", "c2", codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, clock.RealClock{}, 0)
			requests := &works{dataType: cloudevents.SigningRequests}
			s.Serve(requests)
			spec := func(action cloudevents.Action) cloudevents.Type {
				return cloudevents.Type{DataType: cloudevents.SigningRequests, SubResource: cloudevents.Spec, Action: action}
			}
			stream := s.trySubscribe(t, test.user, test.cluster, cloudevents.SigningRequests)
			header, _ := stream.Header()
			if begun := len(header.Get("subscription-id")) > 0; begun != (test.want == codes.OK) {
				t.Fatalf("subscribed: %t", begun)
			}
			published := map[cloudevents.Action]any{cloudevents.Create: struct{}{}, cloudevents.Resync: cloudevents.ResourceVersions{}}
			for action, data := range published {
				if err := s.publishAs(t, test.user, test.cluster, spec(action), data); status.Code(err) != test.want {
					t.Errorf("%s: got %v, want %s", action, err, test.want)
				}
			}
			if test.want == codes.OK {
				return
			}
			if _, err := stream.Recv(); status.Code(err) != test.want {
				t.Errorf("subscribe: got %v, want %s", err, test.want)
			}
			if len(requests.wrote) > 0 {
				t.Errorf("written: %v", requests.wrote)
			}
		})
	}
}

// GR-10: a write is made in the name of the caller, and a client gets the error of the API.
func TestPublish(t *testing.T) {
	t.Parallel()
	s := start(t, clock.RealClock{}, 0)
	if err := s.publish(t, "c1", "c1", cloudevents.Update, struct{}{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"w c1 by c1"}; !slices.Equal(s.works.wrote, want) {
		t.Errorf("written: %v", s.works.wrote)
	}
	if asked := s.rights.asked[0]; asked.Verb != "update" || asked.Subresource != "status" || asked.Namespace != "c1" {
		t.Errorf("asked for %+v", asked)
	}
	s.works.err = apierrors.NewConflict(schema.GroupResource{Resource: "manifestworks"}, "w", errors.New("changed"))
	err := s.publish(t, "c1", "c1", cloudevents.Update, struct{}{})
	if status.Code(err) != codes.FailedPrecondition || !apierrors.IsConflict(cloudevents.APIError(err)) {
		t.Errorf("got %v", err)
	}
	for _, event := range []*pb.CloudEvent{nil, {Id: "i", Source: "s", SpecVersion: "1.0", Type: "nonsense"},
		{Id: "i", Source: "s", SpecVersion: "1.0", Type: "a.v1.b.spec.create_request"}} {
		_, err := s.client.Publish(as(t.Context(), "c1"), &pb.PublishRequest{Event: event})
		if !apierrors.IsBadRequest(cloudevents.APIError(err)) {
			t.Errorf("%v: got %v", event, err)
		}
	}
}

// CE-05: a resync brings what is newer, what is being deleted, and what the agent has not reported on: it may know another generation of
// the same number, from before a restore. It says what does not exist any more. What the API has and this server has not heard of yet is
// not said to be gone, and no reason to set the agent back; what the API itself has in an earlier version than is known is.
func TestResync(t *testing.T) {
	t.Parallel()
	s := start(t, clock.RealClock{}, 0)
	of := func(uid string, version int64) broker.Version {
		return broker.Version{Ref: broker.Ref{Namespace: "c1", Name: uid, UID: types.UID(uid)}, Version: version}
	}
	deleting, unreported, late := of("deleting", 3), of("unreported", 3), of("late", 2)
	deleting.Deleting, unreported.Unreported, late.Unreported = true, true, true
	s.works.versions["c1"] = []broker.Version{of("same", 3), of("newer", 4), of("restored", 2), of("behind", 2), late, deleting, unreported,
		of("new", 1)}
	s.works.existing = map[types.UID]int64{"unheard": 1, "restored": 2, "behind": 3, "late": 3}
	known := cloudevents.ResourceVersions{}
	for _, uid := range []string{"same", "newer", "restored", "behind", "late", "deleting", "unreported", "unheard", "gone"} {
		known.Versions = append(known.Versions, cloudevents.ResourceVersion{ResourceID: uid, ResourceVersion: 3})
	}
	if err := s.publish(t, "c1", "c1", cloudevents.Resync, known); !apierrors.IsServiceUnavailable(cloudevents.APIError(err)) {
		t.Errorf("without a subscription: %v", err)
	}
	stream := s.subscribe(t, "c1", "c1")
	if err := s.publish(t, "c1", "c1", cloudevents.Resync, known); err != nil {
		t.Fatal(err)
	}
	got := []string{next(t, stream)}
	for got[len(got)-1] != "delete_request gone" {
		got = append(got, next(t, stream))
	}
	if want := []string{"resync_response newer", "resync_response deleting", "resync_response unreported", "resync_response new",
		"resync_response restored", "delete_request gone"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// CE-05 O12: the mark at the end of a resync request is answered after everything else, and is no reason to ask the API.
func TestEndOfResync(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known  []string
		want   []string
		listed int
	}{
		"nothing":             {nil, []string{"resync_response there", "delete_request zz-1"}, 0},
		"what is there":       {[]string{"there"}, []string{"delete_request zz-1"}, 0},
		"what is gone, too":   {[]string{"there", "gone"}, []string{"delete_request gone", "delete_request zz-1"}, 1},
		"what sorts after it": {[]string{"there", "zzz"}, []string{"delete_request zzz", "delete_request zz-1"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, clock.RealClock{}, 0)
			s.works.versions["c1"] = []broker.Version{{Ref: broker.Ref{Namespace: "c1", Name: "there", UID: "there"}, Version: 3}}
			known := cloudevents.ResourceVersions{}
			for _, id := range append(test.known, "zz-1") {
				known.Versions = append(known.Versions, cloudevents.ResourceVersion{ResourceID: id, ResourceVersion: 3})
			}
			stream := s.subscribe(t, "c1", "c1")
			if err := s.publish(t, "c1", "c1", cloudevents.Resync, known); err != nil {
				t.Fatal(err)
			}
			var got []string
			for range test.want {
				got = append(got, next(t, stream))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if s.works.listed != test.listed {
				t.Errorf("the API was asked %d times, want %d", s.works.listed, test.listed)
			}
		})
	}
}

// GR-05: heartbeats come at their interval.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	c := clocktesting.NewFakeClock(time.Now())
	s := start(t, c, 10*time.Second)
	stream := s.subscribe(t, "c1", "c1")
	for range 3 {
		stop := step(c, 10*time.Second)
		if got := next(t, stream); got != "heartbeat" {
			t.Errorf("got %q", got)
		}
		stop()
	}
}

// step moves the clock on, again and again, until somebody has noticed.
func step(c *clocktesting.FakeClock, by time.Duration) (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				if c.HasWaiters() {
					c.Step(by)
				}
			}
		}
	}()
	return func() { close(done) }
}

// GR-07: a subscription ends when its right has gone: at once when the hub has decided so about the cluster, otherwise when it is reviewed.
func TestRevocation(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(s *server, c *clocktesting.FakeClock) (stop func()){
		"by the hub": func(s *server, _ *clocktesting.FakeClock) func() { s.Review("c1"); return func() {} },
		"otherwise":  func(_ *server, c *clocktesting.FakeClock) func() { return step(c, 31*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clocktesting.NewFakeClock(time.Now())
			s := start(t, c, 0)
			stream, other := s.subscribe(t, "c1-x", "c1"), s.subscribe(t, "c1-y", "c1")
			s.rights.deny("c1-x")
			stop := revoke(s, c)
			if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
				t.Errorf("got %v", err)
			}
			stop()
			s.Notify(change("c1", "a"))
			if got := next(t, other); got != "update_request a" {
				t.Errorf("the other one got %q", got)
			}
		})
	}
}

// GR-07: the agent of a denied cluster, and nobody else, gets the works that it may get by name, to finish them: on request and when they
// change. Another one is kept from it, and not said to be gone. When it is accepted again, it has to subscribe anew, to get them all.
func TestWorksByName(t *testing.T) {
	t.Parallel()
	const agent, user = "c1-a+system:open-cluster-management:c1", "c1-b"
	s := start(t, clock.RealClock{}, 0)
	for _, uid := range []string{"old", "new"} {
		s.works.versions["c1"] = append(s.works.versions["c1"], broker.Version{Ref: change("c1", uid).Ref, Version: 4})
	}
	s.works.existing = map[types.UID]int64{"old": 4, "new": 4, "hidden": 4}
	s.rights.deny("c1-a", "old")
	s.rights.deny(user, "old")
	if _, err := s.trySubscribe(t, user, "c1", cloudevents.ManifestBundles).Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("who is no agent: %v", err)
	}
	stream := s.subscribe(t, agent, "c1")
	known := cloudevents.ResourceVersions{}
	for _, uid := range []string{"old", "hidden", "gone"} {
		known.Versions = append(known.Versions, cloudevents.ResourceVersion{ResourceID: uid, ResourceVersion: 3})
	}
	if err := s.publish(t, agent, "c1", cloudevents.Resync, known); err != nil {
		t.Fatal(err)
	}
	s.Notify(change("c1", "new"))
	s.Notify(change("c1", "old"))
	if got, want := []string{next(t, stream), next(t, stream), next(t, stream)},
		[]string{"resync_response old", "delete_request gone", "update_request old"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.Review("c1")
	s.Notify(change("c1", "old"))
	if got := next(t, stream); got != "update_request old" {
		t.Errorf("after a review: %s", got)
	}
	s.rights.accept("c1-a")
	s.Review("c1")
	if _, err := stream.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("accepted again: %v", err)
	}
	all := s.subscribe(t, agent, "c1")
	s.Notify(change("c1", "new"))
	if got := next(t, all); got != "update_request new" {
		t.Errorf("accepted again, it gets %s", got)
	}
	s.rights.deny("c1-a")
	s.Review("c1")
	if _, err := all.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("denied without works: %v", err)
	}
}

// strangers are resources that the hub does not know.
func strangers(prefix string, n int) cloudevents.ResourceVersions {
	known := cloudevents.ResourceVersions{}
	for i := range n {
		known.Versions = append(known.Versions, cloudevents.ResourceVersion{ResourceID: fmt.Sprint(prefix, i), ResourceVersion: 1})
	}
	return known
}

// A subscriber that does not read has no answers to resync requests pile up: one may be about as many unknown resources as may wait for it,
// and waits for room for a bounded time, whatever time the client gives.
func TestResyncsAreBounded(t *testing.T) {
	t.Parallel()
	c := clocktesting.NewFakeClock(time.Now())
	s := start(t, c, 0)
	s.subscribe(t, "c1", "c1")
	if err := s.publish(t, "c1", "c1", cloudevents.Resync, strangers("many", 20_000)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("20,000 unknown resources: %v", err)
	}
	if s.works.listed > 0 {
		t.Error("the API was asked about them")
	}
	if err := s.publish(t, "c1", "c1", cloudevents.Resync, strangers("first", 10_000)); err != nil {
		t.Errorf("10,000 unknown resources: %v", err)
	}
	defer step(c, 10*time.Second)()
	var err error
	for i := 0; err == nil && i < 20; i++ { // some are on their way to the client
		err = s.publish(t, "c1", "c1", cloudevents.Resync, strangers(fmt.Sprint("more", i, "-"), 10_000))
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("while nothing is received: %v", err)
	}
}

// Of a user, one resync request about a topic is answered at a time: what others say is not read before.
func TestResyncsTakeTurns(t *testing.T) {
	t.Parallel()
	s := start(t, clock.RealClock{}, 0)
	s.works.asking, s.works.answer = make(chan struct{}, 20), make(chan struct{})
	s.subscribe(t, "c1-a", "c1")
	s.subscribe(t, "c1-b", "c1")
	results := make(chan error, 20)
	ask := func(user string) {
		go func() { results <- s.publish(t, user, "c1", cloudevents.Resync, strangers("u", 1)) }()
	}
	ask("c1-a")
	<-s.works.asking
	for range 12 { // of which 10 may wait
		ask("c1-a")
	}
	for range 2 {
		if err := <-results; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("too many: %v", err)
		}
	}
	ask("c1-b")
	<-s.works.asking // another user does not wait
	if len(s.works.asking) > 0 {
		t.Error("two requests of a user are answered at once")
	}
	close(s.works.answer)
	for range 12 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// GR-04 O12: a subscriber that does not read is cut off when too much waits for it, and hinders nobody.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	s := start(t, clock.RealClock{}, 0)
	slow, quick := s.subscribe(t, "c1-slow", "c1"), s.subscribe(t, "c1-quick", "c1")
	ended := make(chan error, 1)
	for i := range 100000 {
		s.Notify(change("c1", fmt.Sprint(i)))
		if i%1000 == 999 {
			for range 1000 {
				next(t, quick)
			}
		}
	}
	go func() {
		for {
			if _, err := slow.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := <-ended; status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the slow one ends with %v", err)
	}
}

// GR-12: what the server does is counted, by data type.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := start(t, clock.RealClock{}, 0)
	stream := s.subscribe(t, "c1", "c1")
	s.Notify(change("c1", "a"))
	next(t, stream)
	if err := s.publish(t, "c1", "c1", cloudevents.Update, struct{}{}); err != nil {
		t.Fatal(err)
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			// Tests beside this one count, too.
			if metric.GetCounter().GetValue() > 0 || metric.GetGauge().GetValue() > 0 || metric.GetHistogram().GetSampleCount() > 0 {
				found[family.GetName()] = true
			}
		}
	}
	for _, name := range []string{"subscribers", "called_total", "message_received_total", "message_sent_total", "processed_total",
		"processing_duration_seconds"} {
		if !found["grpc_server_ce_"+name] {
			t.Errorf("grpc_server_ce_%s counts nothing", name)
		}
	}
}

// GR-01: a server that ends tells its subscribers.
func TestStop(t *testing.T) {
	t.Parallel()
	s := start(t, clock.RealClock{}, 0)
	stream := s.subscribe(t, "c1", "c1")
	s.Stop()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}
