//go:build bench

package bench

import (
	"cmp"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/test/env"
)

// placementController is the name of the controller that decides on placements.
const placementController = "placement-placement-schedule"

// metrics are what a hub counts: all requests since its start, also by what they were, the watches under way, how often it has written the
// decisions of a placement or found them as they are, how many placements wait for that or are under way, and the tunnels of agents.
type metrics struct {
	requests, watches, decided, undecided, tunnels float64
	byKind                                         map[string]float64
}

func metricsOf(t *testing.T, hub *env.Server) metrics {
	body := get(t, hub, "/metrics")
	defer body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		t.Fatal(err)
	}
	m := metrics{byKind: map[string]float64{}}
	for _, sample := range families["apiserver_request_total"].GetMetric() {
		n := sample.GetCounter().GetValue()
		m.requests += n
		m.byKind[strings.Join([]string{label(sample, "verb"), label(sample, "resource"), label(sample, "subresource"), label(sample, "code")},
			" ")] += n
	}
	for _, sample := range families["apiserver_longrunning_requests"].GetMetric() {
		if label(sample, "verb") == "WATCH" {
			m.watches += sample.GetGauge().GetValue()
		}
	}
	for _, sample := range families["scheduling_bind_duration_seconds"].GetMetric() {
		m.decided += float64(sample.GetHistogram().GetSampleCount())
	}
	for _, sample := range families["capstan_tunnels"].GetMetric() {
		m.tunnels += sample.GetGauge().GetValue()
	}
	for _, name := range []string{"workqueue_depth", "controller_runtime_active_workers"} {
		for _, sample := range families[name].GetMetric() {
			if label(sample, "controller") == placementController {
				m.undecided += sample.GetGauge().GetValue()
			}
		}
	}
	return m
}

func label(m *dto.Metric, name string) string {
	i := slices.IndexFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == name })
	if i < 0 {
		return ""
	}
	return m.Label[i].GetValue()
}

// logBusiest logs the kinds of requests of which there were most since before.
func logBusiest(t *testing.T, what string, now, before metrics, per float64) {
	const shown = 10
	since := func(kind string) float64 { return (now.byKind[kind] - before.byKind[kind]) / per }
	kinds := slices.SortedFunc(maps.Keys(now.byKind), func(a, b string) int { return cmp.Compare(since(b), since(a)) })
	for _, kind := range kinds[:min(shown, len(kinds))] {
		t.Logf("%s: %.1f %s", what, since(kind), kind)
	}
}

func get(t *testing.T, hub *env.Server, path string) io.ReadCloser {
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", path, response.Status)
	}
	return response.Body
}

// download saves what the hub serves at a path.
func download(t *testing.T, hub *env.Server, path, file string) {
	body := get(t, hub, path)
	defer body.Close()
	f, err := os.Create(file)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := io.Copy(f, body); err != nil {
		t.Error(err)
	}
}
