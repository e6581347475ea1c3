package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/installation"
)

// RG-47: an import leaves a cluster alone that another hub has, and says so without advice that is for users of the command line.
func TestImportDoesNoHarm(t *testing.T) {
	t.Parallel()
	const version = "operator.open-cluster-management.io/v1"
	kubeconfigAt := func(server string) []byte { return fmt.Appendf(nil, kubeconfig, server) }
	answers := map[string]any{
		"/api/v1":          map[string]any{"resources": []any{map[string]any{"name": "secrets", "kind": "Secret", "namespaced": true}}},
		"/apis/" + version: map[string]any{"resources": []any{map[string]any{"name": "klusterlets", "kind": "Klusterlet"}}},
		"/apis/" + version + "/klusterlets": map[string]any{"apiVersion": version, "kind": "KlusterletList", "items": []any{map[string]any{
			"apiVersion": version, "kind": "Klusterlet", "metadata": map[string]any{"name": "klusterlet"},
			"spec": map[string]any{"clusterName": "rome"}}}},
		"/api/v1/namespaces/open-cluster-management-agent/secrets/bootstrap-hub-kubeconfig": map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"name": "bootstrap-hub-kubeconfig"}, "data": map[string]any{"kubeconfig": kubeconfigAt("former")}},
	}
	for name, test := range map[string]struct {
		hub     string
		refused bool
	}{"another hub": {"other", true}, "the same hub": {"former", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				content, found := answers[r.URL.Path]
				if r.Method != http.MethodGet && test.refused {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				if r.Method != http.MethodGet || !found {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				if err := json.NewEncoder(w).Encode(content); err != nil {
					t.Error(err)
				}
			}))
			t.Cleanup(server.Close)
			values := map[string]any{"createNamespace": true, "bootstrapHubKubeConfig": string(kubeconfigAt(test.hub)),
				"klusterlet": map[string]any{"clusterName": "rome"}}
			err := installAgent(t.Context(), &rest.Config{Host: server.URL}, "rome", values)
			conflict := (*installation.Conflict)(nil)
			if refused := errors.As(err, &conflict); refused != test.refused {
				t.Fatalf("error %v", err)
			}
			if test.refused && (conflict.Kind != installation.ConflictHub || strings.Contains(err.Error(), "--")) {
				t.Errorf("error %v", err)
			}
		})
	}
}
