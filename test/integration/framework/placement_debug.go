package framework

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
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

// AsItself leaves the administrator what it is.
func AsItself(config *rest.Config) *rest.Config { return config }

// AsUser impersonates a user.
func AsUser(name string) func(*rest.Config) *rest.Config {
	return func(config *rest.Config) *rest.Config {
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{fleet.GroupAuthenticated}}
		return config
	}
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
