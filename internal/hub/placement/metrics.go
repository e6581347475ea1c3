package placement

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The metrics of PL-24 that tell deciding from writing. Both are in seconds, of one placement.
var (
	schedulingSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: "scheduling", Name: "scheduling_duration_seconds",
		Help:    "How long it takes to select the clusters of a placement.",
		Buckets: prometheus.ExponentialBuckets(1e-5, 4, 10),
	})
	bindSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: "scheduling", Name: "bind_duration_seconds",
		Help:    "How long it takes to write the decisions and the status of a placement.",
		Buckets: prometheus.ExponentialBuckets(1e-4, 4, 10),
	})
)

func init() { metrics.Registry.MustRegister(schedulingSeconds, bindSeconds) }
