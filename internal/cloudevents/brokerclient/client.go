package brokerclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

const (
	// How many events a client publishes, in a second and at once.
	publishRate  = 50
	publishBurst = 100
	// publishTimeout is how long the broker may take to answer. A connection that leaves a call unanswered for so long, and on which nothing
	// else has come either, is given up.
	publishTimeout = 15 * time.Second
	// headerTimeout is how long the broker may take to accept a subscription.
	headerTimeout = 5 * time.Second
	// connectPatience is how long a subscription waits for a new connection before it fails for what was wrong with the last one.
	connectPatience = 2 * time.Second
	// maxMessage is how large an event may be: a ManifestWork has one to two megabytes, at most.
	maxMessage = 32 << 20
)

// reconnection is the pause between attempts to connect to a broker that cannot be reached.
var reconnection = backoff.Config{BaseDelay: 5 * time.Second, Multiplier: 5, Jitter: 0.5, MaxDelay: time.Minute}

// Why a client ends a subscription itself.
var (
	errReplaced = errors.New("the credential for the gRPC server changed, and the connection with it")
	errSilent   = errors.New("the gRPC server sent no event and no heartbeat for longer than serverHealthinessTimeout")
)

// Client is a connection to a broker, of which there is another when files of the credential change.
type Client struct {
	userAgent string
	config    config
	limiter   flowcontrol.RateLimiter
	clock     clock.WithDelayedExecution // of the silence of subscriptions

	mu  sync.Mutex
	now *connection
}

// connection ends when its calls have ended after it was replaced.
type connection struct {
	*grpc.ClientConn
	broker   pb.CloudEventServiceClient
	calls    sync.WaitGroup
	replaced chan struct{}
	heard    atomic.Int64 // when something came last, in nanoseconds
}

func (c *connection) hear() { c.heard.Store(time.Now().UnixNano()) }

func (c *connection) isSilent() bool {
	return time.Since(time.Unix(0, c.heard.Load())) >= publishTimeout
}

// New returns a client, which works until the context ends. It connects when it is used.
func New(ctx context.Context, userAgent string, settings *grpcconfig.Config) (*Client, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	c := &Client{
		userAgent: userAgent, config: config{settings}, clock: clock.RealClock{},
		limiter: flowcontrol.NewTokenBucketRateLimiter(publishRate, publishBurst),
	}
	changes := filewatch.New(c.config.files)
	var err error
	if c.now, err = c.newConnection(); err != nil {
		return nil, err
	}
	if len(c.config.files()) > 0 {
		go changes.Run(ctx, c.Reconnect)
	}
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = c.now.Close()
	})
	return c, nil
}

func (c *Client) newConnection() (*connection, error) {
	secure, err := c.config.tls()
	if err != nil {
		return nil, err
	}
	if secure.GetClientCertificate != nil {
		if _, err := c.config.clientCertificate(); err != nil {
			return nil, err
		}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(secure)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnection, MinConnectTimeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithUserAgent(c.userAgent), grpc.WithDisableServiceConfig(),
	}
	if c.config.Token != "" || c.config.TokenFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{c.config}))
	}
	if c.config.KeepAlive.Enable {
		options = append(options, grpc.WithKeepaliveParams(parameters(c.config.KeepAlive)))
	}
	conn, err := grpc.NewClient(c.config.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to the gRPC server %s: %w", c.config.URL, err)
	}
	return &connection{ClientConn: conn, broker: pb.NewCloudEventServiceClient(conn), replaced: make(chan struct{})}, nil
}

func parameters(k grpcconfig.KeepAlive) keepalive.ClientParameters {
	p := keepalive.ClientParameters{Time: defaultKeepAliveTime, Timeout: defaultKeepAliveTimeout, PermitWithoutStream: k.PermitWithoutStream}
	if k.Time != nil {
		p.Time = k.Time.Duration
	}
	if k.Timeout != nil {
		p.Timeout = k.Timeout.Duration
	}
	return p
}

// bearer puts the token into the metadata of calls.
type bearer struct{ config config }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.config.bearer()
	if err != nil {
		return nil, err
	}
	return map[string]string{cloudevents.MetadataAuthorization: "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }

// use is the connection now, until done is called.
func (c *Client) use() (conn *connection, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.calls.Add(1)
	return c.now, c.now.calls.Done
}

// Reconnect ends all subscriptions, and makes a new connection for the next ones. Events that are being published are not lost.
func (c *Client) Reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replace(c.now)
}

// replace does nothing if another has replaced the connection already. One that cannot be made, because its files are being written, leaves
// the last one: the change of the next file makes another.
func (c *Client) replace(last *connection) {
	if c.now != last {
		return
	}
	next, err := c.newConnection()
	if err != nil {
		return
	}
	c.now = next
	close(last.replaced)
	go func() {
		last.calls.Wait()
		_ = last.Close()
	}()
}

// Publish sends an event, and returns what the broker says of it.
func (c *Client) Publish(ctx context.Context, event *cloudevents.Event) error {
	message, err := event.ToProto()
	if err != nil {
		return err
	}
	if err := c.limiter.Wait(ctx); err != nil {
		return err
	}
	conn, done := c.use()
	defer done()
	bounded, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err = conn.broker.Publish(bounded, &pb.PublishRequest{Event: message})
	if err == nil {
		conn.hear()
	}
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil && conn.isSilent() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.replace(conn)
	}
	return err
}

// Subscription is a [cloudevents.Subscription].
type Subscription struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   func()
	hear   func()
	stream grpc.ServerStreamingClient[pb.CloudEvent]
	// silent ends the subscription when it has been silent for too long; nil without such a check.
	silent  clock.Timer
	patient time.Duration
}

// Subscribe returns when the broker sends all events of a data type that are for a cluster: specs.
func (c *Client) Subscribe(ctx context.Context, cluster string, dataType cloudevents.DataType) (cloudevents.Subscription, error) {
	return c.subscribe(ctx, &pb.SubscriptionRequest{ClusterName: cluster, DataType: dataType.String()})
}

// SubscribeAsSource returns when the broker sends all events of a data type that are for a source: statuses, and requests for specs.
func (c *Client) SubscribeAsSource(ctx context.Context, source string, dataType cloudevents.DataType) (cloudevents.Subscription, error) {
	return c.subscribe(ctx, &pb.SubscriptionRequest{Source: source, DataType: dataType.String()})
}

func (c *Client) subscribe(ctx context.Context, request *pb.SubscriptionRequest) (cloudevents.Subscription, error) {
	conn, done := c.use()
	conn.attempt(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Subscription{ctx: ctx, cancel: cancel, done: sync.OnceFunc(done), hear: conn.hear}
	stream, err := conn.broker.Subscribe(ctx, request)
	if err == nil {
		s.stream = stream
		err = s.accepted()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	go func() {
		select {
		case <-conn.replaced:
			cancel(errReplaced)
		case <-ctx.Done():
		}
	}()
	if c.config.ServerHealthinessTimeout != nil {
		s.patient = c.config.ServerHealthinessTimeout.Duration
		s.silent = c.clock.AfterFunc(s.patient, func() { cancel(errSilent) })
	}
	return s, nil
}

// accepted waits for the header of the broker. If that comes without the ID of a subscription, there is an error.
func (s *Subscription) accepted() error {
	late := time.AfterFunc(headerTimeout, func() {
		s.cancel(status.Errorf(codes.Unavailable, "the gRPC server has not accepted the subscription for %s", headerTimeout))
	})
	defer late.Stop()
	header, err := s.stream.Header()
	if err == nil && len(header.Get(cloudevents.HeaderSubscriptionID)) > 0 {
		return nil
	}
	if err == nil {
		if _, err = s.stream.Recv(); err == nil {
			return status.Errorf(codes.Internal, "the gRPC server sent an event before the header %s", cloudevents.HeaderSubscriptionID)
		}
	}
	return s.explain(err)
}

// Receive returns the next event. Heartbeats are none.
func (s *Subscription) Receive() (*cloudevents.Event, error) {
	for {
		message, err := s.stream.Recv()
		if err != nil {
			return nil, s.explain(err)
		}
		if s.silent != nil {
			s.silent.Reset(s.patient)
		}
		s.hear()
		if message.GetType() == cloudevents.Heartbeat {
			continue
		}
		event, err := cloudevents.FromProto(message)
		if err != nil {
			log.FromContext(s.ctx).Error(err, "The gRPC server sent what is no event; it is left out")
			continue
		}
		return event, nil
	}
}

// explain is the reason for which the client ended the subscription itself, if it did.
func (s *Subscription) explain(err error) error {
	cause := context.Cause(s.ctx)
	if cause == nil || errors.Is(cause, context.Canceled) {
		return err
	}
	return cause
}

// End ends the subscription, so that Receive fails with the reason.
func (s *Subscription) End(reason error) { s.cancel(reason) }

// Close frees what belongs to the subscription.
func (s *Subscription) Close() {
	s.cancel(nil)
	if s.silent != nil {
		s.silent.Stop()
	}
	s.done()
}

// attempt has the connection made now, if there is none, and not after a pause for an earlier one that failed.
func (c *connection) attempt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	if c.GetState() == connectivity.TransientFailure {
		c.ResetConnectBackoff()
	}
	c.Connect()
	for state := c.GetState(); state != connectivity.Ready; state = c.GetState() {
		if !c.WaitForStateChange(ctx, state) || state == connectivity.Connecting && c.GetState() == connectivity.TransientFailure {
			return
		}
	}
}
