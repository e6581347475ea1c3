package framework

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// Impersonate is a client of a user in a cluster.
func Impersonate(t *testing.T, server *env.Server, user string, groups ...string) client.Client {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, fleet.GroupAuthenticated)}
	return env.ClientFor(t, config)
}
