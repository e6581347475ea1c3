package secureserving

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	flagMetrics = "metrics-bind-address"
	// LocalMetrics is an address for who is on the same machine, or in the same pod.
	LocalMetrics = "127.0.0.1:8080"
)

// AddMetricsFlag adds --metrics-bind-address, for the metrics alone.
func AddMetricsFlag(flags *pflag.FlagSet, address *string) {
	flags.StringVar(address, flagMetrics, *address,
		"Address at which /metrics is served; "+None+
			" serves none. At any that is not of this machine alone it is served over HTTPS, to those whom the API lets get /metrics.")
}

// MetricsOptions serve metrics without TLS to this machine. They show how many clusters there are and what they do, so clients from
// elsewhere need a right of the API that the process works for.
func MetricsOptions(address string, bounds func(*tls.Config)) (metricsserver.Options, error) {
	options := metricsserver.Options{BindAddress: address}
	if address == None {
		return options, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return options, fmt.Errorf("--%s: %w: write HOST:PORT, such as %s, or %s for none", flagMetrics, err, LocalMetrics, None)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return options, nil
	}
	options.SecureServing, options.FilterProvider = true, guarded
	if bounds != nil {
		options.TLSOpts = []func(*tls.Config){bounds}
	}
	return options, nil
}

// guarded lets those read metrics whom the API lets.
func guarded(api *rest.Config, _ *http.Client) (metricsserver.Filter, error) {
	readers, err := newReviewer(api)
	if err != nil {
		return nil, err
	}
	return func(_ logr.Logger, next http.Handler) (http.Handler, error) { return readers.guard(next), nil }, nil
}
