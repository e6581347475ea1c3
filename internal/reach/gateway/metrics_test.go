package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
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

// CG-09: whatever a cluster answers, with whatever paths, it makes no series without an end.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	names := resourceNames{known: sets.New[string]()}
	for name, want := range map[string]string{
		"": "", "pods": "pods", "with-dash": "with-dash", "Pods": other, "pods.v1": other, "\xff": other, strings.Repeat("x", 64): other,
	} {
		if got := names.label(name); got != want {
			t.Errorf("the label of resource %q is %q, want %q", name, got, want)
		}
	}
	for i := range maxResources + 1 {
		names.label(fmt.Sprintf("r%d", i))
	}
	if first, last := names.label("r0"), names.label(fmt.Sprintf("r%d", maxResources)); first != "r0" || last != other ||
		names.known.Len() != maxResources {
		t.Errorf("of %d resources, the first has the label %q, and one too many %q", names.known.Len(), first, last)
	}
	const verb = "bounded" // of no other test
	to := New(Options{Namespace: "credentials"}).connections.to(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: verb}})
	to.cluster = &clustersecret.Cluster{Name: verb}
	writer := &observedWriter{ResponseWriter: httptest.NewRecorder(), to: to, about: &request.RequestInfo{Verb: verb, Resource: "\xff"}}
	writer.WriteHeader(299)
	for _, counted := range []int{
		seriesWith(t, map[string]string{"verb": verb, "resource": other, "code": other}),
		seriesWith(t, map[string]string{"cluster": verb, "code": other}),
	} {
		if counted != 1 {
			t.Errorf("an answer with a status that means nothing is in %d series, want 1", counted)
		}
	}
}

func seriesOf(t *testing.T, cluster string) int {
	t.Helper()
	return seriesWith(t, map[string]string{"cluster": cluster})
}

// seriesWith is how many series have the labels.
func seriesWith(t *testing.T, labels map[string]string) (n int) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			found := 0
			for _, label := range metric.GetLabel() {
				if value, wanted := labels[label.GetName()]; wanted && value == label.GetValue() {
					found++
				}
			}
			if found == len(labels) {
				n++
			}
		}
	}
	return n
}
