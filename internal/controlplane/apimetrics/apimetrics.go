// Package apimetrics serves the metrics of all parts of a process by its API server, for standalone hubs and aggregated APIs.
package apimetrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	controllermetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Install serves the metrics of every part of the process at /metrics: the API server's, the controllers', etcd's. The endpoint of the
// library, which has the API server's alone, has to be off.
func Install(to *mux.PathRecorderMux) {
	// Installing the stock endpoint is what registers the API server's metrics; it has only those, so it goes elsewhere.
	routes.DefaultMetrics{}.Install(mux.NewPathRecorderMux("metrics"))
	slis.SLIMetrics{}.Install(to)
	all := merged{legacyregistry.DefaultGatherer, controllermetrics.Registry, prometheus.DefaultGatherer}
	to.Handle("/metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
}

// merged gathers from registries that share names. Each has the metrics of the process and of Go, which count where they are
// found first; of the work queues each has those that its library made, which differ in their labels.
type merged []prometheus.Gatherer

// Gather implements prometheus.Gatherer.
func (m merged) Gather() ([]*dto.MetricFamily, error) {
	var all []*dto.MetricFamily
	byName := map[string]*dto.MetricFamily{}
	for _, registry := range m {
		families, err := registry.Gather()
		if err != nil {
			return all, err
		}
		for _, family := range families {
			if first, found := byName[family.GetName()]; found {
				addOthers(first, family)
				continue
			}
			byName[family.GetName()] = family
			all = append(all, family)
		}
	}
	return all, nil
}

// addOthers adds to a family the metrics of another one of that name whose labels it does not have yet.
func addOthers(to, from *dto.MetricFamily) {
	if to.GetType() != from.GetType() {
		return
	}
	seen := map[string]bool{}
	for _, metric := range to.Metric {
		seen[labelsOf(metric)] = true
	}
	for _, metric := range from.Metric {
		if !seen[labelsOf(metric)] {
			to.Metric = append(to.Metric, metric)
		}
	}
}

// labelsOf distinguishes metrics of one family. A registry returns labels in the order of their names.
func labelsOf(metric *dto.Metric) string {
	var labels strings.Builder
	for _, label := range metric.GetLabel() {
		fmt.Fprintf(&labels, "%q=%q,", label.GetName(), label.GetValue())
	}
	return labels.String()
}
