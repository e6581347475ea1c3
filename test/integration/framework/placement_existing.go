package framework

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// Asker asks at the address of the placement controllers, instead of at the API server.
func (s *Serving) Asker(t *testing.T, existing *env.Server, become func(*rest.Config) *rest.Config) Asker {
	t.Helper()
	return NewAsker(t, existing, func(config *rest.Config) *rest.Config {
		config = become(config)
		config.Host, config.CAFile, config.CAData = "https://"+s.Address, "", s.certificate
		return config
	})
}

// StartPlacementControllers runs the placement controllers of a hub in an existing cluster, which explain placements at the address.
func StartPlacementControllers(t *testing.T, existing *env.Server) (explaining Serving, controllers *env.Process) {
	t.Helper()
	explaining = Serving{Address: env.FreeAddress(t), CertDir: t.TempDir()}
	explaining.MakeCertificate(t)
	controllers = env.NewControllers(t, KubeconfigOf(t, existing, fleet.ServiceAccountPlacementController), "--controllers", "placement",
		"--leader-election-namespace", fleet.NamespaceHub, "--health-probe-bind-address", "0",
		"--placement-debug-bind-address", explaining.Address, "--placement-debug-cert-dir", explaining.CertDir)
	if err := controllers.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if strings.Contains(controllers.Log(), "forbidden") {
			t.Errorf("a right is missing in deploy/hub/rights.yaml:\n%s", controllers.Log())
		}
	})
	return explaining, controllers
}
