package main

import (
	"testing"

	"github.com/capstan-io/capstan/internal/secureserving"
)

// "metrics of controllers and webhooks on loopback or authenticated"
func TestMetricsAreServedToThisMachine(t *testing.T) {
	t.Parallel()
	const flag = "metrics-bind-address"
	for name, command := range map[string]func() string{
		"controllers": func() string { return newControllersCommand().Flags().Lookup(flag).DefValue },
		"webhooks":    func() string { return newWebhooksCommand().Flags().Lookup(flag).DefValue },
	} {
		if address := command(); address != secureserving.LocalMetrics {
			t.Errorf("%s serves metrics at %s", name, address)
		}
	}
}
