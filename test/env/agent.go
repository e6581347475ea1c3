package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Agent is a capstan-agent between a hub and a managed cluster.
type Agent struct {
	*Process
	// Cluster is the managed cluster's name on the hub.
	Cluster string
	// Bootstrap is the bootstrap kubeconfig file, and HubDir the folder of the hub kubeconfig.
	Bootstrap, HubDir string
}

// NewAgent lays out an agent without starting it. An empty token means the hub's own bootstrap token.
func NewAgent(t testing.TB, hub, managed *Server, cluster, token string, flags ...string) *Agent {
	t.Helper()
	return newAgent(t, "run", hub, managed, cluster, token, flags)
}

// NewRegistrationAgent lays out a registration agent alone.
func NewRegistrationAgent(t testing.TB, hub, managed *Server, cluster string, flags ...string) *Agent {
	t.Helper()
	return newAgent(t, "registration", hub, managed, cluster, "", flags)
}

func newAgent(t testing.TB, command string, hub, managed *Server, cluster, token string, flags []string) *Agent {
	t.Helper()
	dir := t.TempDir()
	if token == "" {
		token = hub.BootstrapToken(t)
	}
	a := &Agent{Cluster: cluster, Bootstrap: filepath.Join(dir, "bootstrap.kubeconfig"), HubDir: filepath.Join(dir, "hub-kubeconfig")}
	a.WriteBootstrap(t, hub, token)
	args := append([]string{command, "--bootstrap-kubeconfig", a.Bootstrap, "--hub-kubeconfig-dir", a.HubDir,
		"--spoke-kubeconfig", managed.Kubeconfig, "--cluster-name", cluster}, flags...)
	a.Process = newProcess(filepath.Join(dir, "agent.log"), "capstan-agent", args...)
	a.StopWith(t)
	return a
}

// NewWorkAgent lays out a work agent alone, which finds its credential in dir or in the Secret that flags name.
func NewWorkAgent(t testing.TB, managed *Server, dir string, flags ...string) *Process {
	t.Helper()
	p := newProcess(filepath.Join(t.TempDir(), "work.log"), "capstan-agent",
		append([]string{"work", "--hub-kubeconfig-dir", dir, "--spoke-kubeconfig", managed.Kubeconfig}, flags...)...)
	p.StopWith(t)
	return p
}

// Join starts an agent and accepts its cluster, and returns when the cluster is joined and available.
func Join(t testing.TB, hub, managed *Server, cluster string, flags ...string) *Agent {
	t.Helper()
	a := NewAgent(t, hub, managed, cluster, "", flags...)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	Accept(t, hub.Client(t), cluster)
	AwaitAvailable(t, hub.Client(t), cluster)
	return a
}

// WriteBootstrap writes the bootstrap kubeconfig.
func (a *Agent) WriteBootstrap(t testing.TB, hub *Server, token string) {
	t.Helper()
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bootstrap": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"bootstrap": {Cluster: "hub", AuthInfo: "bootstrap"}},
		CurrentContext: "bootstrap",
	}, a.Bootstrap)
	if err != nil {
		t.Fatal(err)
	}
}

// HubConfig is the client configuration under which the agent works on the hub.
func (a *Agent) HubConfig(t testing.TB) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(a.HubDir, fleet.KeyKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// BootstrapToken is the hub's current bootstrap token.
func (s *Server) BootstrapToken(t testing.TB) string {
	t.Helper()
	secrets := &corev1.SecretList{}
	err := s.Client(t).List(t.Context(), secrets, client.InNamespace("kube-system"),
		client.MatchingLabels{fleet.LabelApp: fleet.AppClusterManager})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets.Items {
		if secret.Type == corev1.SecretTypeBootstrapToken {
			return string(secret.Data["token-id"]) + "." + string(secret.Data["token-secret"])
		}
	}
	t.Fatal("the hub has no bootstrap token")
	return ""
}

// Accept approves the certificate requests of a cluster, as soon as there is one, and accepts the cluster.
func Accept(t testing.TB, hub client.Client, cluster string) {
	t.Helper()
	Eventually(t, func(ctx context.Context) error {
		requests := &certificatesv1.CertificateSigningRequestList{}
		if err := hub.List(ctx, requests, client.MatchingLabels{fleet.LabelClusterName: cluster}); err != nil {
			return err
		}
		if len(requests.Items) == 0 {
			return fmt.Errorf("no CertificateSigningRequest of cluster %s", cluster)
		}
		for i := range requests.Items {
			if err := Approve(ctx, hub, &requests.Items[i]); err != nil {
				return err
			}
		}
		mc := &clusterv1.ManagedCluster{}
		if err := hub.Get(ctx, client.ObjectKey{Name: cluster}, mc); err != nil {
			return err
		}
		before := mc.DeepCopy()
		mc.Spec.HubAcceptsClient = true
		return hub.Patch(ctx, mc, client.MergeFrom(before))
	})
}

// Approve approves a certificate request.
func Approve(ctx context.Context, hub client.Client, csr *certificatesv1.CertificateSigningRequest) error {
	for _, c := range csr.Status.Conditions {
		if c.Type == certificatesv1.CertificateApproved {
			return nil
		}
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "Approved by a test",
	})
	return hub.SubResource("approval").Update(ctx, csr)
}

// AwaitAvailable waits until a cluster has joined and is available.
func AwaitAvailable(t testing.TB, hub client.Client, cluster string) {
	t.Helper()
	Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := hub.Get(ctx, client.ObjectKey{Name: cluster}, mc); err != nil {
			return err
		}
		for _, c := range []string{fleet.ConditionHubAccepted, fleet.ConditionJoined, fleet.ConditionClusterAvailable} {
			if !meta.IsStatusConditionTrue(mc.Status.Conditions, c) {
				return fmt.Errorf("cluster %s is not %s: %v", cluster, c, mc.Status.Conditions)
			}
		}
		return nil
	})
}

// ReplaceFile writes a file that a running program may be reading.
func ReplaceFile(t testing.TB, path string, content []byte) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}
