//go:build bench

package bench

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-io/capstan/test/env"
)

// idleManifests are in one work.
const idleManifests = 1000

// measureIdleManifests looks at what an agent does when nothing happens to a thousand objects that it has applied, and how
// long they take to come.
func measureIdleManifests(t *testing.T, r *report, hub *env.Server) {
	const cluster = "idle"
	managed := env.StartSandbox(t)
	metrics := env.FreeAddress(t)
	agent := env.Join(t, hub, managed, cluster, "--metrics-bind-address", metrics)
	works, c := watchAllWorks(t, hub), hub.Client(t)
	work := workOf(cluster, "idle", configMapsOf(idleManifests)...)
	applied, begin := works.count(t, "Applied", 1, ofCluster(cluster, isApplied)), time.Now()
	create(t, c, work)
	r.add(fmt.Sprintf("work of %d manifests created to Applied", idleManifests), "s", "", applied.await(t).Sub(begin).Seconds())
	wait(t, settled)
	before, requests := usageOf(t, agent.Pid()), requestsOf(t, metrics)
	wait(t, idlePeriod)
	after, requestsAfter := usageOf(t, agent.Pid()), requestsOf(t, metrics)
	name := fmt.Sprintf("agent of %d manifests, idle: ", idleManifests)
	r.add(name+"resident memory", "MB", "", after.rss)
	r.add(name+"CPU per minute", "s", "", perMinute(after.cpu-before.cpu))
	for where, server := range map[string]*env.Server{"the hub": hub, "its cluster": managed} {
		config, err := server.Config()
		if err != nil {
			t.Fatal(err)
		}
		r.add(name+"requests to "+where+" per minute", "1/min", "", requestsAfter.to(config.Host)-requests.to(config.Host))
	}
	t.Logf("requests before %v, after %v", requests, requestsAfter)
}

func configMapsOf(n int) (manifests []string) {
	for i := range n {
		manifests = append(manifests,
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"idle-%d"},"data":{"key":"value"}}`,
				corev1.NamespaceDefault, i))
	}
	return manifests
}

// requests that an agent has sent since its start, by host, method and code.
type requests map[[3]string]float64

func (r requests) to(host string) (n float64) {
	for kind, count := range r {
		if "https://"+kind[0] == host {
			n += count
		}
	}
	return n
}

func requestsOf(t *testing.T, metrics string) requests {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	sent := requests{}
	for _, sample := range families["rest_client_requests_total"].GetMetric() {
		sent[[3]string{label(sample, "host"), label(sample, "method"), label(sample, "code")}] += sample.GetCounter().GetValue()
	}
	return sent
}
