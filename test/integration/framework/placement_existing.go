package framework

import (
	"testing"

	"k8s.io/client-go/rest"

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
