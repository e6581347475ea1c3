package install

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// probe waits until an HTTPS address answers with the code, as a kubelet would see it, or a client with a token.
func probe(t *testing.T, p *env.Process, address, path, token string, code int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(client.CloseIdleConnections)
	env.Eventually(t, func(ctx context.Context) error {
		select {
		case <-p.Done():
			t.Fatalf("the process has ended:\n%s", p.Log())
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
		if err != nil {
			return err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		if response.StatusCode != code {
			return fmt.Errorf("%s answers %s, want %d: %s", path, response.Status, code, body)
		}
		return nil
	})
}

// metricsReader returns the token of a service account that may read metrics, and nothing else.
func metricsReader(t *testing.T, s *env.Server) string {
	t.Helper()
	const name = "metrics-reader"
	c := s.Client(t)
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	framework.Create(t, c, &corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: name}}})
	return framework.TokenOf(t, s, meta.Namespace, name)
}

// CM-17: a process that is called by a command of the hub of Open Cluster Management is probed over HTTPS, and serves metrics to those who
// may get them. The agent's program becomes the hub's for it.
func TestCommandsOfTheHub(t *testing.T) {
	t.Parallel()
	existing := env.StartSandbox(t)
	framework.ServeOnly(t, existing, strings.Fields(
		"managedclusters managedclustersets managedclustersetbindings placements placementdecisions addonplacementscores"))
	address := env.FreeAddress(t)
	controller := env.NewProgram(t, nil, "capstan-agent", "/placement", "controller", "--kubeconfig="+existing.Kubeconfig,
		"--listen="+address, "--namespace=default")
	if err := controller.Start(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		probe(t, controller, address, path, "", http.StatusOK)
	}
	probe(t, controller, address, "/metrics", "", http.StatusUnauthorized)
	probe(t, controller, address, "/metrics", metricsReader(t, existing), http.StatusOK)
	framework.AwaitLog(t, controller, "Starting workers", 1)
}

// KL-02 KL-07: the agents of Open Cluster Management's Deployments, of which the one for works has the credential in a volume.
func TestCommandsOfAgents(t *testing.T) {
	t.Parallel()
	const name = "ocm-agents"
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "ocm-agents")
	common := []string{"--spoke-cluster-name=" + name, "--spoke-kubeconfig=" + framework.Managed.Kubeconfig, "--namespace=" + ns}
	files := env.NewAgent(t, framework.Hub, framework.Managed, name, "")

	registrationAddress := env.FreeAddress(t)
	registration := env.NewProgram(t, nil, "capstan-agent", slices.Concat([]string{"/registration", "agent", "--listen=" + registrationAddress,
		"--bootstrap-kubeconfig=" + files.Bootstrap, "--hub-kubeconfig-dir=" + files.HubDir}, common)...)
	if err := registration.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitRequests(t, name, 1)
	// An agent that waits to be accepted is alive, and not ready.
	probe(t, registration, registrationAddress, "/healthz", "", http.StatusOK)
	probe(t, registration, registrationAddress, "/readyz", "", http.StatusInternalServerError)
	env.Accept(t, h, name)
	env.AwaitAvailable(t, h, name)
	probe(t, registration, registrationAddress, "/readyz", "", http.StatusOK)
	probe(t, registration, registrationAddress, "/metrics", "", http.StatusUnauthorized)

	volume := mountSecret(t, m, client.ObjectKey{Namespace: ns, Name: "hub-kubeconfig-secret"})
	before := listDir(t, volume)
	workAddress := env.FreeAddress(t)
	worker := env.NewProgram(t, nil, "capstan-agent", slices.Concat([]string{"/work", "agent", "--listen=" + workAddress,
		"--workload-source-driver=kube", "--workload-source-config=" + filepath.Join(volume, fleet.KeyKubeconfig)}, common)...)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	probe(t, worker, workAddress, "/healthz", "", http.StatusOK)
	w := framework.Work(name, "ocm-agents", framework.ConfigMap(ns, "applied", "1"))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	framework.AwaitConfigMap(t, m, ns, "applied", "1")
	for _, lease := range []string{"registration-agent-lock", "work-agent-lock"} {
		if err := m.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: lease}, &coordinationv1.Lease{}); err != nil {
			t.Errorf("replicas do not elect a leader: %v", err)
		}
	}
	if after := listDir(t, volume); !slices.Equal(before, after) {
		t.Errorf("the volume of the Secret had %v and has %v", before, after)
	}
}

// mountSecret lays a Secret out as kubelets do: the files are links into a folder that is replaced as a whole.
func mountSecret(t *testing.T, c client.Client, key client.ObjectKey) (dir string) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..data_1"), 0o700); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"..data": "..data_1"}
	for file, content := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, "..data_1", file), content, 0o600); err != nil {
			t.Fatal(err)
		}
		links[file] = filepath.Join("..data", file)
	}
	for link, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func listDir(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name()+" "+entry.Type().String())
	}
	return names
}
