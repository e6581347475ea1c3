package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capstan-io/capstan/internal/reach/gateway/clustersecret"
)

// CG-09: the series of a cluster end with its Secret, also if a request to it has no answer yet.
func TestSeriesEndWithTheirCluster(t *testing.T) {
	t.Parallel()
	g := New(Options{Namespace: "credentials"})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "credentials", Name: "leaves"}}
	to := g.connections.to(secret)
	to.cluster = &clustersecret.Cluster{Name: secret.Name}
	answer := func(code int) {
		writer := &observedWriter{ResponseWriter: httptest.NewRecorder(), to: to, about: &request.RequestInfo{Verb: "get"}}
		writer.WriteHeader(code)
	}
	answer(http.StatusOK)
	answer(http.StatusBadGateway)
	if n := seriesOf(t, secret.Name); n != 2 {
		t.Errorf("the cluster has %d series, want 2", n)
	}
	g.handler().OnDelete(secret)
	answer(http.StatusServiceUnavailable)
	if n := seriesOf(t, secret.Name); n != 0 {
		t.Errorf("the cluster that is gone has %d series", n)
	}
}

func seriesOf(t *testing.T, cluster string) (n int) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "cluster" && label.GetValue() == cluster {
					n++
				}
			}
		}
	}
	return n
}
