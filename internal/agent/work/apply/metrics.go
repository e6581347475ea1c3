package apply

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The labels are kinds that the managed cluster serves and that works name.
var (
	repairCount = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capstan_work_repairs_total",
		Help: "Objects that were changed back, or made again, because others had changed or deleted them since they were applied.",
	}, []string{"group", "kind"})
	disputeCount = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "capstan_work_disputed_manifests",
		Help: "Manifests with the condition Disputed: others keep changing or deleting their objects.",
	}, []string{"group", "kind"})
)

func init() { metrics.Registry.MustRegister(repairCount, disputeCount) }

// countDisputes adds the disputes of a pass to the metric, or takes them off it.
func (p *workResult) countDisputes(sign float64) {
	for i := range p.results {
		if o := &p.results[i]; o.dispute != nil {
			disputeCount.WithLabelValues(o.identity.Group, o.identity.Kind).Add(sign)
		}
	}
}
