package gateway

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	requestsByResource = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ocm_proxy_proxied_resource_requests_by_resource_total",
		Help: "Requests that were handed on to clusters, by what they are about.",
	}, []string{"resource", "verb", "code"})
	requestsByCluster = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ocm_proxy_proxied_resource_requests_by_cluster_total",
		Help: "Requests that were handed on to clusters, by cluster.",
	}, []string{"cluster", "code"})
	requestDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ocm_proxy_proxied_resource_requests_duration_seconds",
		Help:    "How long it took until clusters began to answer.",
		Buckets: []float64{0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30},
	}, []string{"resource", "verb"})
)

func init() { metrics.Registry.MustRegister(requestsByResource, requestsByCluster, requestDuration) }

const (
	// other is the value of labels in place of what has no series of its own.
	other = "other"
	// maxResources is how many resources have series of their own. Clusters decide which they have, and each takes memory of the hub.
	maxResources = 500
)

// resourceNames are the resources that have series of their own: the first ones that clusters have answered requests about.
type resourceNames struct {
	mu    sync.Mutex
	known sets.Set[string]
}

var resources = resourceNames{known: sets.New[string]()}

// label returns the value of the label for a resource, whose name is a DNS label. Requests that are not about a resource have an empty one.
func (n *resourceNames) label(resource string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case resource == "" || n.known.Has(resource):
		return resource
	case n.known.Len() >= maxResources || len(validation.IsDNS1123Label(resource)) > 0:
		return other
	}
	n.known.Insert(resource)
	return resource
}

// codeLabel returns the value of the label for the status of an answer. A cluster could answer with hundreds that mean nothing.
func codeLabel(status int) string {
	if http.StatusText(status) == "" {
		return other
	}
	return strconv.Itoa(status)
}

// forgetRequests ends the series of a cluster that is gone.
func forgetRequests(cluster string) {
	requestsByCluster.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
}

// observedWriter counts an answer when it starts, for it may take hours until it ends.
type observedWriter struct {
	http.ResponseWriter
	to       *connection
	about    *request.RequestInfo
	started  time.Time
	observed bool
}

var _ responsewriter.UserProvidedDecorator = &observedWriter{}

// observe counts. What callers call a resource counts as one only if the cluster says that it has it, for each label takes memory.
func (w *observedWriter) observe(status int) {
	if w.observed {
		return
	}
	w.observed = true
	resource, code := "", codeLabel(status)
	if status < http.StatusBadRequest {
		resource = resources.label(w.about.Resource)
	}
	requestsByResource.WithLabelValues(resource, w.about.Verb, code).Inc()
	if !errors.Is(context.Cause(w.to.ctx), errSecretDeleted) {
		requestsByCluster.WithLabelValues(w.to.cluster.Name, code).Inc()
	}
	requestDuration.WithLabelValues(resource, w.about.Verb).Observe(time.Since(w.started).Seconds())
}

// WriteHeader implements http.ResponseWriter.
func (w *observedWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.observe(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Flush implements http.Flusher.
func (w *observedWriter) Flush() {
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// Hijack implements http.Hijacker.
func (w *observedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController, and Unwrap of the API server.
func (w *observedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
