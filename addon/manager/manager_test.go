package manager_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/manager"
)

type named string

func (n named) Options() addon.Options { return addon.Options{Name: string(n)} }

func (n named) Manifests(context.Context, addon.Installation) (*addon.Workload, error) {
	return &addon.Workload{}, nil
}

// What is wrong with a manager is said at once, and not when the first add-on is installed.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Hello", "hello/manager", strings.Repeat("a", 64)} {
		if _, err := manager.New(&rest.Config{}, manager.Options{Name: name}); err == nil || !strings.Contains(err.Error(), "name") {
			t.Errorf("name %q: %v", name, err)
		}
	}
	cleartext := &rest.Config{Host: "http://hub", BearerToken: "t"}
	if _, err := manager.New(cleartext, manager.Options{Name: "hello"}); err == nil || !strings.Contains(err.Error(), "without TLS") {
		t.Errorf("a token without TLS: %v", err)
	}
	for what, test := range map[string]struct {
		agents []addon.Agent
		says   string
	}{
		"none":              {nil, "no add-on"},
		"one without name":  {[]addon.Agent{named("")}, "no Name"},
		"two with the same": {[]addon.Agent{named("hello"), named("hello")}, `"hello"`},
	} {
		if _, err := manager.Setup(nil, "manager", test.agents...); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
