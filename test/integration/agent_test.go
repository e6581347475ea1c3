package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// awaitRequests waits until a cluster has so many certificate requests.
func awaitRequests(t *testing.T, cluster string, n int) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		if names := requests(t, cluster); len(names) != n {
			return fmt.Errorf("requests %v, want %d", names, n)
		}
		return nil
	})
}

func requests(t *testing.T, cluster string) (names []string) {
	t.Helper()
	return requestsOn(t, hub.Client(t), cluster)
}

func requestsOn(t *testing.T, c client.Client, cluster string) (names []string) {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(t.Context(), list, client.MatchingLabels{fleet.LabelClusterName: cluster}); err != nil {
		t.Fatal(err)
	}
	for _, csr := range list.Items {
		names = append(names, csr.Name)
	}
	return names
}

func awaitLog(t *testing.T, p *env.Process, text string, times int) {
	t.Helper()
	env.Eventually(t, func(context.Context) error {
		if n := strings.Count(p.Log(), text); n < times {
			return fmt.Errorf("the log says %q %d times, want %d", text, n, times)
		}
		return nil
	})
}

func awaitAnswer(t *testing.T, url string, code int) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != code {
			return fmt.Errorf("%s answers %s, want %d", url, response.Status, code)
		}
		return nil
	})
}

// RG-12: an agent that waits to be accepted is alive and not ready; it is ready when it works.
func TestHealthOfAgent(t *testing.T) {
	t.Parallel()
	const name = "healthy"
	health, metrics, profiles := env.FreeAddress(t), env.FreeAddress(t), env.FreeAddress(t)
	agent := env.NewAgent(t, hub, managed, name, "",
		"--health-probe-bind-address", health, "--metrics-bind-address", metrics, "--pprof-bind-address", profiles)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitRequests(t, name, 1)
	for path, code := range map[string]int{"/healthz": 200, "/healthz/hub-kube-config": 200, "/readyz": 500, "/readyz/ping": 200} {
		awaitAnswer(t, "http://"+health+path, code)
	}
	awaitAnswer(t, "http://"+metrics+"/metrics", 200)
	awaitAnswer(t, "http://"+profiles+"/debug/pprof/cmdline", 200)
	env.Accept(t, hub.Client(t), name)
	for _, path := range []string{"/readyz", "/healthz"} {
		awaitAnswer(t, "http://"+health+path, 200)
	}
	busy := env.NewAgent(t, hub, managed, "busy-port", "", "--health-probe-bind-address", health)
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	busy.AwaitExit(t)
	if log := busy.Log(); !strings.Contains(log, "--health-probe-bind-address "+health) {
		t.Errorf("an address in use is reported as:\n%s", log)
	}
}

// RG-06 RG-07: an agent that is killed while it waits takes its request up again, be it approved meanwhile or not.
func TestRequestOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	const name = "patient"
	agent := env.NewAgent(t, hub, managed, name, "")
	for i := range 3 {
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		awaitRequests(t, name, 1)
		awaitLog(t, agent.Process, "taken up again", i)
		agent.Kill()
	}
	env.Accept(t, hub.Client(t), name)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.AwaitAvailable(t, hub.Client(t), name)
	if names := requests(t, name); len(names) != 1 {
		t.Errorf("requests %v", names)
	}
	if _, err := os.Stat(filepath.Join(agent.HubDir, ".pending.key")); !os.IsNotExist(err) {
		t.Errorf("the key of the request is kept: %v", err)
	}
}

// RG-07: an agent whose ManagedCluster the hub refuses does not pile up requests.
func TestNoRequestWithoutManagedCluster(t *testing.T) {
	t.Parallel()
	const name = "no-cluster"
	c := hub.Client(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	create(t, c, account,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"certificatesigningrequests"},
				Verbs: []string{"create", "get", "list", "watch"}},
			{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"managedclusters"}, Verbs: []string{"get"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
		})
	token := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	agent := env.NewAgent(t, hub, managed, name, token.Status.Token)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, agent.Process, "Registration failed and is tried again", 2)
	if names := requests(t, name); len(names) > 0 {
		t.Errorf("requests %v", names)
	}
}

// RG-02 RG-03: a bootstrap kubeconfig that names its files by relative paths is still the same after a restart.
func TestRelativePathsInBootstrapKubeconfig(t *testing.T) {
	t.Parallel()
	const name = "relative"
	agent := env.NewAgent(t, hub, managed, name, "")
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(agent.Bootstrap)
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), config.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	env.ReplaceFile(t, agent.Bootstrap, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"a",
		"clusters":[{"name":"hub","cluster":{"server":%q,"certificate-authority":"ca.crt"}}],
		"users":[{"name":"a","user":{"token":%q}}],"contexts":[{"name":"a","context":{"cluster":"hub","user":"a"}}]}`, config.Host,
		hub.BootstrapToken(t)))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, hub.Client(t), name)
	env.AwaitAvailable(t, hub.Client(t), name)
	if err := agent.Stop(); err != nil {
		t.Error(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, agent.Process, "Connected to the hub", 2)
	if names := requests(t, name); len(names) != 1 {
		t.Errorf("requests %v", names)
	}
}

// RG-04 RG-09 KL-07: an agent in a new pod, with nothing but the Secret, is who it was. Of several replicas, one acts; when it
// stops, the next one does.
func TestReplicasShareASecret(t *testing.T) {
	t.Parallel()
	const name = "replicas"
	ns := namespace(t, managed.Client(t), "replicas-agent")
	flags := []string{"--hub-kubeconfig-secret", "hub-kubeconfig-secret", "--namespace", ns}
	first := env.Join(t, hub, managed, name, flags...)
	second := env.NewAgent(t, hub, managed, name, "", flags...)
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, second.Process, "Waiting to lead", 1)
	secret := &corev1.Secret{}
	if err := managed.Client(t).Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "hub-kubeconfig-secret"}, secret); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"kubeconfig", "tls.crt", "tls.key", "cluster-name", "agent-name"} {
		if len(secret.Data[key]) == 0 {
			t.Errorf("the Secret holds no %s", key)
		}
	}
	if strings.Contains(second.Log(), "Connected to the hub") {
		t.Error("two replicas act at once")
	}
	if err := first.Stop(); err != nil {
		t.Errorf("the first replica did not stop well: %v", err)
	}
	awaitLog(t, second.Process, "Connected to the hub", 1)
	if certificate(t, first) != certificate(t, second) {
		t.Error("the second replica has another certificate")
	}
	if names := requests(t, name); len(names) != 1 {
		t.Errorf("requests %v", names)
	}
}

// Issue 2: registration and work in a process of their own each, which have nothing in common but a Secret.
func TestAgentInTwoProcesses(t *testing.T) {
	t.Parallel()
	const name = "apart"
	h, m := hub.Client(t), managed.Client(t)
	ns := namespace(t, m, "apart-agent")
	flags := []string{"--hub-kubeconfig-secret", "hub-kubeconfig-secret", "--namespace", ns}
	dir := t.TempDir()
	worker := env.NewWorkAgent(t, managed, dir, flags...)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, worker, "Waiting for the registration agent", 1)
	registration := env.NewRegistrationAgent(t, hub, managed, name, flags...)
	if err := registration.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, h, name)
	env.AwaitAvailable(t, h, name)
	w := work(name, "apart", configMap(ns, "apart", "1"))
	create(t, h, w)
	awaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	awaitConfigMap(t, m, ns, "apart", "1")
}

// SC-22: an agent whose kinds a user removes from the managed cluster installs them again, and applies its works again.
func TestKindIsRemoved(t *testing.T) {
	t.Parallel()
	const name = "kind-is-removed"
	own := env.StartSandbox(t)
	env.Join(t, hub, own, name)
	awaitWorking(t, hub.Client(t), name, "before-it-is-removed")
	crd, key := &unstructured.Unstructured{}, client.ObjectKey{Name: "appliedmanifestworks.work.open-cluster-management.io"}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := own.Client(t).Get(t.Context(), key, crd); err != nil {
		t.Fatal(err)
	}
	if err := own.Client(t).Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		now := crd.DeepCopy()
		err := own.Client(t).Get(ctx, key, now)
		if err == nil && now.GetUID() == crd.GetUID() {
			return fmt.Errorf("it has not been removed yet")
		}
		return err
	})
	awaitWorking(t, hub.Client(t), name, "after-it-was-removed")
	env.Eventually(t, func(ctx context.Context) error {
		return own.Client(t).Get(ctx, client.ObjectKey{Namespace: "default", Name: "before-it-is-removed"}, &corev1.ConfigMap{})
	})
}
