package repairclient

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var delayedCount = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "capstan_held_writes_total",
	Help: "Writes of controllers that were held back, because others undo the same write again and again.",
}, []string{"group", "kind"})

func init() { metrics.Registry.MustRegister(delayedCount) }
