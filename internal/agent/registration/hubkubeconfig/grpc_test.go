package hubkubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/agent/hubaccess"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-51: the credential of an agent by gRPC is in the file config.yaml, and says as a hub kubeconfig does for which hub it was made.
func TestGRPCStore(t *testing.T) {
	t.Parallel()
	access := hubaccess.GRPC("")
	file := filepath.Join(t.TempDir(), fleet.KeyConfig)
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("url: hub:8090\ncaData: Y2E=\ntoken: t\nserverHealthinessTimeout: 20s\n")
	bootstrap, err := access.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := issue(t, self.User())
	made, err := New(bootstrap, self, certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	store := &Store{Dir: filepath.Join(t.TempDir(), "hub"), Access: access}
	if err := store.Save(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(store.Dir, fleet.KeyKubeconfig)); err == nil {
		t.Error("there is a kubeconfig")
	}
	if info, err := os.Stat(store.HubFile()); err != nil || info.Mode().Perm() != 0o600 || filepath.Base(store.HubFile()) != fleet.KeyConfig {
		t.Errorf("%s: %v, %v", store.HubFile(), info, err)
	}
	loaded, err := store.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := loaded.Valid(self, now); err != nil {
		t.Error(err)
	}
	if err := loaded.MadeFor(bootstrap); err != nil {
		t.Error(err)
	}
	first, err := made.HubID()
	if id, err2 := loaded.HubID(); err != nil || err2 != nil || id != first {
		t.Errorf("the hub is %s and was %s: %v, %v", id, first, err, err2)
	}
	for _, changed := range []string{
		"url: other:8090\ncaData: Y2E=\ntoken: t\nserverHealthinessTimeout: 20s\n", "url: hub:8090\ncaData: Y2I=\ntoken: t\nserverHealthinessTimeout: 20s\n",
		"url: hub:8090\ncaData: Y2E=\ntoken: t\n",
	} {
		write(changed)
		if bootstrap, err = access.Load(file); err != nil {
			t.Fatal(err)
		}
		if loaded.MadeFor(bootstrap) == nil {
			t.Errorf("the credential is taken to be made for\n%s", changed)
		}
	}
	if config, err := store.Connect(t.Context(), self.Cluster); err == nil {
		t.Errorf("connected to %s with a CA that is none", config.Host)
	}
}

// RG-51: the settings of a connection by gRPC stay as they are, whatever else changes in the credential.
func TestGRPCSettingsStay(t *testing.T) {
	t.Parallel()
	load := func(url string) *clientcmdapi.Config {
		t.Helper()
		file := filepath.Join(t.TempDir(), fleet.KeyConfig)
		if err := os.WriteFile(file, []byte("url: "+url+"\ncaData: Y2E=\ntoken: t\nserverHealthinessTimeout: 20s\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := hubaccess.GRPC("").Load(file)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	moved := load("moved:8090")
	certificate, key := issue(t, self.User())
	first, err := New(load("hub:8090"), self, certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() (*Credential, error){
		"another trust bundle": func() (*Credential, error) { return first.WithTrustBundle([]byte("next")) },
		"moved":                func() (*Credential, error) { return first.For(moved) },
		"registered again where it moved": func() (*Credential, error) {
			earlier, err := first.For(moved)
			if err != nil {
				return nil, err
			}
			again, err := New(moved, self, certificate, key)
			if err != nil {
				return nil, err
			}
			return again.succeeding(earlier)
		},
	} {
		changed, err := change()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, clusterName, hub, err := changed.read()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if settings := originOf(clusterName, hub).Settings; !strings.Contains(settings, "20s") {
			t.Errorf("%s: the settings are %q", name, settings)
		}
	}
}
