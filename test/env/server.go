package env

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// readyTimeout is how long a server may take to be ready. It is longer than WaitTimeout: to start, a hub or a sandbox takes some seconds of
// CPU, and several tests that start at the same time have theirs wait for each other on a machine with few cores.
const readyTimeout = 2 * time.Minute

// Server is a hub or a sandbox cluster.
type Server struct {
	*Process
	// Dir holds its data.
	Dir string
	// Kubeconfig is a file with an administrator's credential.
	Kubeconfig string
}

// NewHub lays out a standalone hub in dir without starting it. Which controllers it runs is controllers; empty means all.
func NewHub(dir, controllers string, flags ...string) (*Server, error) {
	port, err := ports.Next()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	config := fmt.Sprintf("dataDirectory: %s\napiserver:\n  externalHostname: 127.0.0.1\n  port: %d\n", data, port)
	if err := os.WriteFile(filepath.Join(dir, "ocmconfig.yaml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	args := []string{"server", "--controlplane-config-dir", dir, "--bind-address", "127.0.0.1"}
	if controllers != "" {
		args = append(args, "--controllers", controllers)
	}
	args = append(args, flags...)
	return &Server{
		Process:    newProcess(filepath.Join(dir, "hub.log"), "capstan-hub", args...),
		Dir:        dir,
		Kubeconfig: filepath.Join(data, "cert", "kube-aggregator.kubeconfig"),
	}, nil
}

// NewSandbox lays out a sandbox cluster in dir without starting it.
func NewSandbox(dir string) (*Server, error) {
	port, err := ports.Next()
	if err != nil {
		return nil, err
	}
	return &Server{
		Process:    newProcess(filepath.Join(dir, "sandbox.log"), "capstan-sandbox", "run", "--data-dir", dir, "--port", fmt.Sprint(port)),
		Dir:        dir,
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
	}, nil
}

// StartHub starts a hub of the test's own.
func StartHub(t testing.TB, controllers string, flags ...string) *Server {
	t.Helper()
	return start(t, func(dir string) (*Server, error) { return NewHub(dir, controllers, flags...) })
}

// StartSandbox starts a sandbox cluster of the test's own.
func StartSandbox(t testing.TB) *Server {
	t.Helper()
	return start(t, NewSandbox)
}

func start(t testing.TB, layOut func(dir string) (*Server, error)) *Server {
	t.Helper()
	s, err := layOut(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	StartServer(t, s)
	return s
}

// StartServer starts a server that was laid out, for as long as the test runs.
func StartServer(t testing.TB, s *Server) {
	t.Helper()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	s.StopWith(t)
	if err := s.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// AwaitReady returns when the server says that it is ready.
func (s *Server) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	last := "no answer"
	err := Poll(ctx, func(ctx context.Context) (bool, error) {
		select {
		case <-s.Done():
			return false, fmt.Errorf("it ended: %s", s.tail())
		default:
		}
		ready, why := s.ready(ctx)
		last = why
		return ready, nil
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w (%s)", s.program, err, strings.TrimSpace(last))
	}
	return nil
}

func (s *Server) ready(ctx context.Context) (bool, string) {
	config, err := s.Config()
	if err != nil {
		return false, err.Error()
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false, err.Error()
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return false, err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return false, err.Error()
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK, response.Status
}

// Config is the administrator's client configuration.
func (s *Server) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}
