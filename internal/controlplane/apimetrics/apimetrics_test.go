package apimetrics

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// SC-27: no library hides the metrics of another one.
func TestMetricsAreMerged(t *testing.T) {
	t.Parallel()
	depth := func(labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth"}, labels)
	}
	process := func() prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "process_start_time_seconds"})
	}
	first, second := prometheus.NewRegistry(), prometheus.NewRegistry()
	stock, ours := depth("name"), depth("name", "controller")
	first.MustRegister(stock, process())
	second.MustRegister(ours, process(), prometheus.NewCounter(prometheus.CounterOpts{Name: "other"}))
	stock.WithLabelValues("namespace").Set(1)
	ours.WithLabelValues("placement", "placement").Set(2)

	families, err := merged{first, second, second}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			got[family.GetName()] = append(got[family.GetName()], metric.GetGauge().GetValue())
		}
	}
	if len(families) != 3 || len(got["process_start_time_seconds"]) != 1 || len(got["other"]) != 1 ||
		!slices.Equal(got["workqueue_depth"], []float64{1, 2}) {
		t.Errorf("got %v", got)
	}
}
