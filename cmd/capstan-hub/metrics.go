package main

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	flagMetricsAddress = "metrics-bind-address"
	// defaultMetricsAddress is for who is on the same machine, or in the same pod.
	defaultMetricsAddress = "127.0.0.1:8080"
)

func addMetricsAddress(flags *pflag.FlagSet, address *string) {
	flags.StringVar(address, flagMetricsAddress, *address,
		"Address at which /metrics is served; "+noAddress+
			" serves none. At any that is not of this machine alone it is served over HTTPS, to those whom the API lets get /metrics.")
}

// metricsOptions serve metrics without TLS to this machine. They show how many clusters there are and what they do, so clients from
// elsewhere need a right of the API that the process works for.
func metricsOptions(address string, bounds func(*tls.Config)) (metricsserver.Options, error) {
	options := metricsserver.Options{BindAddress: address}
	if address == noAddress {
		return options, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return options, fmt.Errorf("--%s: %w: write HOST:PORT, such as %s, or %s for none", flagMetricsAddress, err, defaultMetricsAddress,
			noAddress)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return options, nil
	}
	options.SecureServing, options.FilterProvider = true, filters.WithAuthenticationAndAuthorization
	if bounds != nil {
		options.TLSOpts = []func(*tls.Config){bounds}
	}
	return options, nil
}
