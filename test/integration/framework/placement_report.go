package framework

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
	"github.com/capstan-io/capstan/test/env"
)

// Asker asks a hub at its debug endpoint, as a user.
type Asker struct {
	client *http.Client
	url    string
}

// NewAsker asks the debug endpoint of a hub, as whom the administrator becomes.
func NewAsker(t *testing.T, s *env.Server, become func(*rest.Config) *rest.Config) Asker {
	t.Helper()
	config, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	config = become(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return Asker{client, config.Host + report.Path}
}

// Ask returns the report, and what the hub answered if it is none.
func (a Asker) Ask(ctx context.Context, method, path string, body any) (*report.Report, int, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, 0, err
	}
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(content))
	if err != nil {
		return nil, 0, err
	}
	response, err := a.client.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	if content, err = io.ReadAll(response.Body); err != nil {
		return nil, 0, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, response.StatusCode, errors.New(string(content))
	}
	answer := &report.Report{}
	return answer, response.StatusCode, json.Unmarshal(content, answer)
}

// Asker asks at the address of the placement controllers, instead of at the API server.
func (s *Serving) Asker(t *testing.T, existing *env.Server, become func(*rest.Config) *rest.Config) Asker {
	t.Helper()
	return NewAsker(t, existing, func(config *rest.Config) *rest.Config {
		config = become(config)
		config.Host, config.CAFile, config.CAData = "https://"+s.Address, "", s.certificate
		return config
	})
}

// StartPlacementDebug explains the placements of a hub in an existing cluster by the command of Open Cluster Management for that.
func StartPlacementDebug(t *testing.T, existing *env.Server) (explaining Serving) {
	t.Helper()
	explaining = Serving{Address: env.FreeAddress(t), CertDir: t.TempDir()}
	explaining.MakeCertificate(t)
	_, port, err := net.SplitHostPort(explaining.Address)
	if err != nil {
		t.Fatal(err)
	}
	debug := env.NewProgram(t, nil, "capstan-hub", "/placement", "debug", "--secure-port", port,
		"--kubeconfig", KubeconfigOf(t, existing, fleet.ServiceAccountPlacementController),
		"--tls-cert-file", filepath.Join(explaining.CertDir, "tls.crt"), "--tls-private-key-file", filepath.Join(explaining.CertDir, "tls.key"))
	if err := debug.Start(); err != nil {
		t.Fatal(err)
	}
	return explaining
}

// StartPlacementControllers runs the placement controllers of a hub in an existing cluster, which explain placements at an address of their
// own.
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
