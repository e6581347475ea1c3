package registration

import (
	"context"
	"fmt"
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
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-12: an agent that waits to be accepted is alive and not ready; it is ready when it works.
func TestHealthOfAgent(t *testing.T) {
	t.Parallel()
	const name = "healthy"
	health, metrics, profiles := env.FreeAddress(t), env.FreeAddress(t), env.FreeAddress(t)
	agent := env.NewAgent(t, framework.Hub, framework.Managed, name, "",
		"--health-probe-bind-address", health, "--metrics-bind-address", metrics, "--pprof-bind-address", profiles)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitRequests(t, name, 1)
	for path, code := range map[string]int{"/healthz": 200, "/healthz/hub-kube-config": 200, "/readyz": 500, "/readyz/ping": 200} {
		framework.AwaitAnswer(t, "http://"+health+path, code)
	}
	framework.AwaitAnswer(t, "http://"+metrics+"/metrics", 200)
	framework.AwaitAnswer(t, "http://"+profiles+"/debug/pprof/cmdline", 200)
	env.Accept(t, framework.Hub.Client(t), name)
	for _, path := range []string{"/readyz", "/healthz"} {
		framework.AwaitAnswer(t, "http://"+health+path, 200)
	}
	busy := env.NewAgent(t, framework.Hub, framework.Managed, "busy-port", "", "--health-probe-bind-address", health)
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
	agent := env.NewAgent(t, framework.Hub, framework.Managed, name, "")
	for i := range 3 {
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		framework.AwaitRequests(t, name, 1)
		framework.AwaitLog(t, agent.Process, "taken up again", i)
		agent.Kill()
	}
	env.Accept(t, framework.Hub.Client(t), name)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.AwaitAvailable(t, framework.Hub.Client(t), name)
	if names := framework.Requests(t, name); len(names) != 1 {
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
	c := framework.Hub.Client(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	framework.Create(t, c, account,
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
	agent := env.NewAgent(t, framework.Hub, framework.Managed, name, token.Status.Token)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitLog(t, agent.Process, "Registration failed and is tried again", 2)
	if names := framework.Requests(t, name); len(names) > 0 {
		t.Errorf("requests %v", names)
	}
}

// RG-02 RG-03: a bootstrap kubeconfig that names its files by relative paths is still the same after a restart.
func TestRelativePathsInBootstrapKubeconfig(t *testing.T) {
	t.Parallel()
	const name = "relative"
	agent := env.NewAgent(t, framework.Hub, framework.Managed, name, "")
	config, err := framework.Hub.Config()
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
		framework.Hub.BootstrapToken(t)))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, framework.Hub.Client(t), name)
	env.AwaitAvailable(t, framework.Hub.Client(t), name)
	if err := agent.Stop(); err != nil {
		t.Error(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitLog(t, agent.Process, "Connected to the hub", 2)
	if names := framework.Requests(t, name); len(names) != 1 {
		t.Errorf("requests %v", names)
	}
}

// RG-04 RG-09 KL-07: an agent in a new pod, with nothing but the Secret, is who it was. Of several replicas, one acts; when it
// stops, the next one does.
func TestReplicasShareASecret(t *testing.T) {
	t.Parallel()
	const name = "replicas"
	ns := framework.Namespace(t, framework.Managed.Client(t), "replicas-agent")
	flags := []string{"--hub-kubeconfig-secret", "hub-kubeconfig-secret", "--namespace", ns}
	first := env.Join(t, framework.Hub, framework.Managed, name, flags...)
	second := env.NewAgent(t, framework.Hub, framework.Managed, name, "", flags...)
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitLog(t, second.Process, "Waiting to lead", 1)
	secret := &corev1.Secret{}
	if err := framework.Managed.Client(t).Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "hub-kubeconfig-secret"},
		secret); err != nil {
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
	framework.AwaitLog(t, second.Process, "Connected to the hub", 1)
	if framework.Certificate(t, first) != framework.Certificate(t, second) {
		t.Error("the second replica has another certificate")
	}
	if names := framework.Requests(t, name); len(names) != 1 {
		t.Errorf("requests %v", names)
	}
}

// Issue 2: registration and work in a process of their own each, which have nothing in common but a Secret.
func TestAgentInTwoProcesses(t *testing.T) {
	t.Parallel()
	const name = "apart"
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, "apart-agent")
	flags := []string{"--hub-kubeconfig-secret", "hub-kubeconfig-secret", "--namespace", ns}
	dir := t.TempDir()
	worker := env.NewWorkAgent(t, framework.Managed, dir, flags...)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitLog(t, worker, "Waiting for the registration agent", 1)
	registration := env.NewRegistrationAgent(t, framework.Hub, framework.Managed, name, flags...)
	if err := registration.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, h, name)
	env.AwaitAvailable(t, h, name)
	w := framework.Work(name, "apart", framework.ConfigMap(ns, "apart", "1"))
	framework.Create(t, h, w)
	framework.AwaitCondition(t, h, w, fleet.ConditionApplied, metav1.ConditionTrue)
	framework.AwaitConfigMap(t, m, ns, "apart", "1")
}

// SC-22: an agent whose kinds a user removes from the managed cluster installs them again, and applies its works again.
func TestKindIsRemoved(t *testing.T) {
	t.Parallel()
	const name = "kind-is-removed"
	own := env.StartSandbox(t)
	env.Join(t, framework.Hub, own, name)
	awaitWorking(t, framework.Hub.Client(t), name, "before-it-is-removed")
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
	awaitWorking(t, framework.Hub.Client(t), name, "after-it-was-removed")
	env.Eventually(t, func(ctx context.Context) error {
		return own.Client(t).Get(ctx, client.ObjectKey{Namespace: "default", Name: "before-it-is-removed"}, &corev1.ConfigMap{})
	})
}
