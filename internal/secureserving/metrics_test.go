package secureserving_test

import (
	"testing"

	"github.com/capstan-io/capstan/internal/secureserving"
)

// "metrics of controllers and webhooks on loopback or authenticated"
func TestMetricsAreGuarded(t *testing.T) {
	t.Parallel()
	for address, guarded := range map[string]bool{
		secureserving.LocalMetrics: false, "localhost:8080": false, "[::1]:8080": false, secureserving.None: false,
		":8080": true, "0.0.0.0:8080": true, "[::]:8080": true, "10.0.0.1:8080": true, "hub.example.com:8080": true,
	} {
		options, err := secureserving.MetricsOptions(address, nil)
		if err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if options.BindAddress != address || options.SecureServing != guarded || (options.FilterProvider != nil) != guarded {
			t.Errorf("%s: %+v, want it guarded: %t", address, options, guarded)
		}
	}
	if _, err := secureserving.MetricsOptions("8080", nil); err == nil {
		t.Error("8080 is taken for an address")
	}
}
