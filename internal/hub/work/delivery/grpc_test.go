package delivery

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
)

// relay is a broker that has one source, and keeps what that publishes.
type relay struct {
	pb.UnimplementedCloudEventServiceServer
	published chan *pb.CloudEvent
	subscribe chan *pb.SubscriptionRequest

	mu sync.Mutex
	// send has what the source is to get, and ends the subscription when it is closed.
	send chan *pb.CloudEvent
}

// Publish implements pb.CloudEventServiceServer.
func (r *relay) Publish(_ context.Context, request *pb.PublishRequest) (*emptypb.Empty, error) {
	r.published <- request.GetEvent()
	return &emptypb.Empty{}, nil
}

// Subscribe implements pb.CloudEventServiceServer.
func (r *relay) Subscribe(request *pb.SubscriptionRequest, stream grpc.ServerStreamingServer[pb.CloudEvent]) error {
	if err := stream.SendHeader(metadata.Pairs(cloudevents.HeaderSubscriptionID, "1")); err != nil {
		return err
	}
	r.subscribe <- request
	r.mu.Lock()
	events := r.send
	r.mu.Unlock()
	for {
		select {
		case event, open := <-events:
			if !open {
				return nil
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// cut ends the subscription.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.send)
	r.send = make(chan *pb.CloudEvent)
}

func startRelay(t *testing.T) (*relay, *grpcconfig.Config) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{published: make(chan *pb.CloudEvent, 10), subscribe: make(chan *pb.SubscriptionRequest, 10), send: make(chan *pb.CloudEvent)}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})))
	pb.RegisterCloudEventServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return r, &grpcconfig.Config{URL: listener.Addr().String(), CAData: certificate, Token: "t"}
}

func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(time.Minute):
		t.Fatalf("%s: nothing comes", what)
		panic("unreachable")
	}
}

// CE-13, CM-13, MR-09: by a broker of gRPC, the hub is the source of works: it gets what agents report, says for whom its requests are, and
// is notified of each new connection.
func TestGRPC(t *testing.T) {
	t.Parallel()
	broker, config := startRelay(t)
	transport := NewGRPC(config, clock.RealClock{})
	connected, received := make(chan struct{}, 10), make(chan string, 10)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		ended <- transport.Start(ctx, Handlers{
			Receive: func(_ context.Context, cluster string, event *cloudevents.Event) {
				received <- cluster + " " + event.ID
			},
			Connected: func(context.Context) { connected <- struct{}{} },
		})
	}()
	if request := await(t, "subscription", broker.subscribe); request.GetSource() != "mwrsctrl" || request.GetClusterName() != "" ||
		request.GetDataType() != cloudevents.ManifestBundles.String() {
		t.Errorf("subscription %v", request)
	}
	await(t, "connection", connected)

	status := cloudevents.New("cluster1-client", cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Status,
		Action: cloudevents.Update}, time.Now())
	status.Extensions[cloudevents.ExtensionClusterName] = "cluster1"
	message, err := status.ToProto()
	if err != nil {
		t.Fatal(err)
	}
	broker.send <- message
	if got := await(t, "status", received); got != "cluster1 "+status.ID {
		t.Errorf("got %s", got)
	}

	request := cloudevents.New(Source, cloudevents.Type{DataType: cloudevents.ManifestBundles, SubResource: cloudevents.Status,
		Action: cloudevents.Resync}, time.Now())
	if err := transport.Send(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	sent, err := cloudevents.FromProto(await(t, "request", broker.published))
	if err != nil || sent.Source != "mwrsctrl" || sent.Text(cloudevents.ExtensionClusterName) != "+" {
		t.Errorf("sent %+v, %v", sent, err)
	}

	broker.cut()
	await(t, "subscription again", broker.subscribe)
	await(t, "connection again", connected)
	cancel()
	if err := await(t, "end", ended); err != nil {
		t.Error(err)
	}
}
