package controlplane

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	controllermetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// installMetrics serves the metrics of every part of the process at /metrics: the API server's, the controllers', etcd's.
func installMetrics(to *mux.PathRecorderMux) {
	// Installing the stock endpoint is what registers the API server's metrics; it has only those, so it goes elsewhere.
	routes.DefaultMetrics{}.Install(mux.NewPathRecorderMux("metrics"))
	slis.SLIMetrics{}.Install(to)
	all := firstOfEach{legacyregistry.DefaultGatherer, controllermetrics.Registry, prometheus.DefaultGatherer}
	to.Handle("/metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
}

// firstOfEach gathers from registries that each have the metrics of the process and of Go: a name counts where it is
// found first.
type firstOfEach []prometheus.Gatherer

// Gather implements prometheus.Gatherer.
func (g firstOfEach) Gather() ([]*dto.MetricFamily, error) {
	var all []*dto.MetricFamily
	seen := map[string]bool{}
	for _, registry := range g {
		families, err := registry.Gather()
		if err != nil {
			return all, err
		}
		var fresh []*dto.MetricFamily
		for _, family := range families {
			if !seen[family.GetName()] {
				fresh = append(fresh, family)
			}
		}
		for _, family := range fresh {
			seen[family.GetName()] = true
		}
		all = append(all, fresh...)
	}
	return all, nil
}
