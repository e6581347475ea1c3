package broker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

const (
	methodPublish   = "Publish"
	methodSubscribe = "Subscribe"
)

// The cluster is no label: a fleet has thousands.
var (
	subscribers = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Subsystem: "grpc_server_ce", Name: "subscribers", Help: "Open subscriptions.",
	}, []string{"data_type"})
	called = prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "grpc_server_ce", Name: "called_total", Help: "Calls that have begun.",
	}, []string{"method"})
	received = prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "grpc_server_ce", Name: "message_received_total",
		Help: "Events and subscriptions of clients that the server knows the data type of.",
	}, []string{"data_type", "method"})
	sent = prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "grpc_server_ce", Name: "message_sent_total", Help: "Events that subscribers were sent, without heartbeats.",
	}, []string{"data_type"})
	processed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "grpc_server_ce", Name: "processed_total", Help: "Calls that have ended, by the code that they ended with.",
	}, []string{"data_type", "method", "grpc_code"})
	duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Subsystem: "grpc_server_ce", Name: "processing_duration_seconds", Help: "How long calls of Publish took.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 11),
	}, []string{"data_type"})
)

func init() {
	metrics.Registry.MustRegister(subscribers, called, received, sent, processed, duration)
}

// call counts a call of a client.
type call struct {
	method string
	// dataType is empty until the server knows it.
	dataType string
	clock    clock.PassiveClock
	started  time.Time
}

func startCall(method string, c clock.PassiveClock) *call {
	called.WithLabelValues(method).Inc()
	return &call{method: method, clock: c, started: c.Now()}
}

// about notes what the call is about, which is a data type that the hub has: clients cannot make up values of the label.
func (c *call) about(dataType cloudevents.DataType) {
	c.dataType = dataType.String()
	received.WithLabelValues(c.dataType, c.method).Inc()
}

func (c *call) end(err error) {
	processed.WithLabelValues(c.dataType, c.method, status.Code(err).String()).Inc()
	if c.method == methodPublish {
		duration.WithLabelValues(c.dataType).Observe(c.clock.Since(c.started).Seconds())
	}
}
