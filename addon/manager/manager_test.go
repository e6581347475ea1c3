package manager_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/manager"
)

type named string

func (n named) Options() addon.Options { return addon.Options{Name: string(n)} }

func (n named) Manifests(context.Context, addon.Installation) (*addon.Workload, error) {
	return &addon.Workload{}, nil
}

// A Secret is not worth a watch of all Secrets: what the cache lacks can be read all the same, and before there is one.
func TestAPIReader(t *testing.T) {
	t.Parallel()
	reply := func(content string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(content))
		}
	}
	api := http.NewServeMux()
	api.Handle("/api", reply(`{"kind":"APIVersions","versions":["v1"]}`))
	var groups []string
	for group, resources := range map[string]string{
		"work.open-cluster-management.io": `{"name":"manifestworks","kind":"ManifestWork","namespaced":true}`,
		"certificates.k8s.io":             `{"name":"certificatesigningrequests","kind":"CertificateSigningRequest"}`,
		"rbac.authorization.k8s.io": `{"name":"roles","kind":"Role","namespaced":true},{"name":"rolebindings","kind":"RoleBinding","namespaced":true},
			{"name":"clusterroles","kind":"ClusterRole"},{"name":"clusterrolebindings","kind":"ClusterRoleBinding"}`,
	} {
		groups = append(groups, fmt.Sprintf(`{"name":%q,"versions":[{"groupVersion":"%[1]s/v1","version":"v1"}]}`, group))
		api.Handle("/apis/"+group+"/v1",
			reply(fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[%s]}`, group, resources)))
	}
	api.Handle("/apis", reply(`{"kind":"APIGroupList","apiVersion":"v1","groups":[`+strings.Join(groups, ",")+`]}`))
	api.Handle("/api/v1", reply(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[
		{"name":"secrets","kind":"Secret","namespaced":true,"verbs":["get"]}]}`))
	api.Handle("/api/v1/namespaces/ns/secrets/one", reply(`{"kind":"Secret","apiVersion":"v1","metadata":{"namespace":"ns","name":"one"}}`))
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	m, err := manager.New(&rest.Config{Host: server.URL}, manager.Options{Name: "reads"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.APIReader().Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "one"}, &corev1.Secret{}); err != nil {
		t.Error(err)
	}
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
