package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	tunnelCount = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "capstan_tunnels",
		Help: "Tunnels that agents of clusters have made to this hub.",
	})
	requestCount = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capstan_proxied_requests_total",
		Help: "Requests to managed clusters by subresource proxy, by whether a cluster answered.",
	}, []string{"answered"})
)

func init() {
	metrics.Registry.MustRegister(tunnelCount, requestCount)
	for _, answered := range []string{"true", "false"} {
		requestCount.WithLabelValues(answered) // so that they are there before the first request
	}
}
