package main

import (
	"testing"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// The gate of works reaches webhooks of add-ons, which have no flag for it in Open Cluster Management, by the environment.
func TestNilExecutorValidating(t *testing.T) {
	for value, want := range map[string]bool{"": false, "false": false, "true": true} {
		t.Setenv(fleet.EnvNilExecutorValidating, value)
		flags := newAdmissionFlags()
		options, err := flags.options(featuregates.Hub())
		if err != nil || options.ManifestWork.NilExecutorValidating != want {
			t.Errorf("with %q: %t, %v; want %t", value, options.ManifestWork.NilExecutorValidating, err, want)
		}
	}
}

// A component of a hosted hub knows from its environment where the accounts of the hub are.
func TestHubNamespace(t *testing.T) {
	for value, want := range map[string]string{"": "open-cluster-management-hub", "indigo": "indigo"} {
		t.Setenv(fleet.EnvHubNamespace, value)
		flags := newAdmissionFlags()
		options, err := flags.options(featuregates.Hub())
		if err != nil || options.HubNamespace != want {
			t.Errorf("with %q: namespace %q, %v; want %q", value, options.HubNamespace, err, want)
		}
		if got := newGRPCFlags().namespace; got != want {
			t.Errorf("with %q: the gRPC server is in the namespace %q, want %q", value, got, want)
		}
	}
}
