package aggregated

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// CG-09: /metrics has what the gateway and the tunnels count, besides what the library of the API server does.
func TestMetrics(t *testing.T) {
	t.Parallel()
	requests := prometheus.NewCounter(prometheus.CounterOpts{Name: "requests_of_the_test_total", Help: "None."})
	metrics.Registry.MustRegister(requests)
	t.Cleanup(func() { metrics.Registry.Unregister(requests) })
	api := API{
		Name: "test", Scheme: runtime.NewScheme(), Ready: func() error { return nil },
		Install: func(*genericapiserver.GenericAPIServer, authorizer.Authorizer) error { return nil },
		Handler: func(handler http.Handler) http.Handler { return handler },
	}
	config := api.describe()
	config.ExternalAddress, config.LoopbackClientConfig = "localhost:443", &rest.Config{}
	server, err := api.newServer(config)
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	server.Handler.NonGoRestfulMux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, want := range []string{"\nrequests_of_the_test_total 0\n", "\ngo_goroutines "} {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
}
