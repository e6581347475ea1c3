package brokerclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
)

// server records who calls, and sends what it is told to.
type server struct {
	pb.UnimplementedCloudEventServiceServer
	ca      *authority
	address string
	events  chan *pb.CloudEvent

	mu      sync.Mutex
	callers []string
}

func (s *server) note(ctx context.Context) {
	caller := strings.Join(metadata.ValueFromIncomingContext(ctx, cloudevents.MetadataAuthorization), ",")
	if client, ok := peer.FromContext(ctx); ok {
		if info, ok := client.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			caller += info.State.PeerCertificates[0].Subject.CommonName
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers = append(s.callers, caller)
}

func (s *server) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.callers) == 0 {
		return ""
	}
	return s.callers[len(s.callers)-1]
}

// Publish implements pb.CloudEventServiceServer.
func (s *server) Publish(ctx context.Context, _ *pb.PublishRequest) (*emptypb.Empty, error) {
	s.note(ctx)
	return &emptypb.Empty{}, nil
}

// Subscribe implements pb.CloudEventServiceServer.
func (s *server) Subscribe(r *pb.SubscriptionRequest, stream grpc.ServerStreamingServer[pb.CloudEvent]) error {
	s.note(stream.Context())
	if r.GetClusterName() == "denied" {
		return status.Error(codes.PermissionDenied, "not you")
	}
	if err := stream.SendHeader(metadata.Pairs(cloudevents.HeaderSubscriptionID, "1")); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case event := <-s.events:
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

func (a *authority) sign(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), key
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{ca: newAuthority(t), events: make(chan *pb.CloudEvent)}
	certificate, key := s.ca.sign(t, "hub")
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.certificate)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	})))
	pb.RegisterCloudEventServiceServer(g, s)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	return s
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newEvent() *cloudevents.Event {
	return cloudevents.New("cluster1", cloudevents.Type{DataType: cloudevents.Leases, SubResource: cloudevents.Spec, Action: cloudevents.Update}, time.Now())
}

// CE-11: a certificate that has been renewed is used for a new connection; the subscriptions of the old one end.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dir := t.TempDir()
	config := &grpcconfig.Config{URL: s.address, CAData: s.ca.pem(), ClientCertFile: filepath.Join(dir, "tls.crt"),
		ClientKeyFile: filepath.Join(dir, "tls.key")}
	certificate, key := s.ca.sign(t, "first")
	write(t, config.ClientKeyFile, key)
	write(t, config.ClientCertFile, certificate)
	c, err := New(t.Context(), "test", config)
	if err != nil {
		t.Fatal(err)
	}
	subscription, err := c.Subscribe(t.Context(), "cluster1", cloudevents.Leases)
	if err != nil || s.last() != "first" {
		t.Fatalf("as %s: %v", s.last(), err)
	}
	defer subscription.Close()
	certificate, key = s.ca.sign(t, "second")
	write(t, config.ClientKeyFile, key)
	write(t, config.ClientCertFile, certificate)
	if event, err := subscription.Receive(); !errors.Is(err, errReplaced) {
		t.Errorf("got %v, %v", event, err)
	}
	deadline := time.After(time.Minute)
	for s.last() != "second" { // two files are two changes
		if err := c.Publish(t.Context(), newEvent()); err != nil && status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		select {
		case <-deadline:
			t.Fatalf("as %s", s.last())
		default:
		}
	}
}

// CE-07: an event waits for its turn, of which there are 50 a second, and 100 at once.
func TestRate(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, err := New(t.Context(), "test", &grpcconfig.Config{URL: s.address, CAData: s.ca.pem()})
	if err != nil {
		t.Fatal(err)
	}
	if rate := c.limiter.QPS(); rate != 50 {
		t.Errorf("%v events a second", rate)
	}
	for i := range 100 {
		if !c.limiter.TryAccept() {
			t.Fatalf("event %d waits", i)
		}
	}
	c.limiter = flowcontrol.NewFakeNeverRateLimiter()
	err = c.Publish(t.Context(), newEvent())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || len(s.callers) > 0 {
		t.Errorf("the server has got %d events out of turn, %v", len(s.callers), err)
	}
}

// CE-09: a token comes from a file, which is read for every call.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	config := &grpcconfig.Config{URL: s.address, CAData: s.ca.pem(), TokenFile: filepath.Join(t.TempDir(), "token")}
	c, err := New(t.Context(), "test", config)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"one", "two"} {
		write(t, config.TokenFile, []byte(token+"\n"))
		if err := c.Publish(t.Context(), newEvent()); err != nil || s.last() != "Bearer "+token {
			t.Errorf("%q, %v", s.last(), err)
		}
	}
}

// GR-04: a subscription that is refused fails with what the server says.
func TestRefusedSubscription(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, err := New(t.Context(), "test", &grpcconfig.Config{URL: s.address, CAData: s.ca.pem()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe(t.Context(), "denied", cloudevents.Leases); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v", err)
	}
}

// GR-05 CE-07: heartbeats are no events, and keep a subscription; without any for too long, it ends.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const patience = time.Minute
	c, err := New(t.Context(), "test", &grpcconfig.Config{URL: s.address, CAData: s.ca.pem(), ServerHealthinessTimeout: &metav1.Duration{Duration: patience}})
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	c.clock = clk
	subscription, err := c.Subscribe(t.Context(), "cluster1", cloudevents.Leases)
	if err != nil {
		t.Fatal(err)
	}
	defer subscription.Close()
	ended := make(chan error, 1)
	go func() {
		event, err := subscription.Receive()
		ended <- fmt.Errorf("%v: %w", event, err)
	}()
	for range 3 {
		clk.Step(patience * 2 / 3)
		heard := c.now.heard.Load()
		select {
		case s.events <- &pb.CloudEvent{Id: "1", Source: "hub", SpecVersion: "1.0", Type: cloudevents.Heartbeat}:
		case err := <-ended:
			t.Fatalf("it ends in spite of heartbeats: %v", err)
		}
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return c.now.heard.Load() != heard, nil
		})
		if err != nil {
			t.Fatalf("the heartbeat does not come: %v", err)
		}
	}
	clk.Step(patience - 1)
	if len(ended) > 0 {
		t.Errorf("it ends too early: %v", <-ended)
	}
	clk.Step(1)
	select {
	case err := <-ended:
		if !errors.Is(err, errSilent) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on without heartbeats")
	}
}

// CE-09: pings have their defaults where the configuration has none.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	config, err := grpcconfig.Parse([]byte("url: hub.example.com:8090\nkeepAliveConfig: {enable: true, time: 20s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p := parameters(config.KeepAlive); p.Time != 20*time.Second || p.Timeout != 10*time.Second || p.PermitWithoutStream {
		t.Errorf("keepalive %+v", p)
	}
	if p := parameters(grpcconfig.KeepAlive{}); p.Time != 30*time.Second {
		t.Errorf("keepalive %+v", p)
	}
}
