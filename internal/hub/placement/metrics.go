package placement

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	scheduler "github.com/capstan-io/capstan/internal/placement"
)

// Scheduling and writing are measured for each placement. Plugins are measured when they run for all clusters, which happens once for all
// placements of an equivalence class; afterwards, they run for single clusters as these change.
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
	pluginSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Subsystem: "scheduling", Name: "plugin_duration_seconds",
		Help:    "How long a filter or prioritizer takes for all clusters.",
		Buckets: prometheus.ExponentialBuckets(1e-6, 4, 12),
	}, []string{"plugin_type", "plugin_name"})
	celSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: "scheduling", Name: "cel_runtime_duration_seconds",
		Help:    "How long it takes to find the clusters that match predicates with CEL expressions.",
		Buckets: prometheus.ExponentialBuckets(1e-5, 4, 10),
	})
)

func init() {
	metrics.Registry.MustRegister(schedulingSeconds, bindSeconds, pluginSeconds, celSeconds)
}

// timePlugins returns a scheduler.Timer that observes the metrics.
func timePlugins(clk clock.PassiveClock) scheduler.Timer {
	return func(kind scheduler.PluginType, name string) func() {
		started := clk.Now()
		return func() {
			took := clk.Since(started).Seconds()
			if kind == scheduler.PluginCEL {
				celSeconds.Observe(took)
				return
			}
			pluginSeconds.WithLabelValues(string(kind), name).Observe(took)
		}
	}
}
