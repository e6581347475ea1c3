package works

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// grpcHub is a hub with a gRPC server next to it.
type grpcHub struct {
	*env.Server
	broker  *env.Process
	address string
	ca      []byte
	// dir has the files of the gRPC server.
	dir string
	// signer signs the certificates of agents.
	signer    *x509.Certificate
	signerKey *ecdsa.PrivateKey
}

// newSigner returns the certificate and the key in PEM.
func (h *grpcHub) newSigner(t *testing.T) (certificate, key []byte) {
	t.Helper()
	var err error
	if h.signerKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if h.signer, err = cert.NewSelfSignedCACert(cert.Config{CommonName: "grpc-ca"}, h.signerKey); err != nil {
		t.Fatal(err)
	}
	if certificate, err = cert.EncodeCertificates(h.signer); err != nil {
		t.Fatal(err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(h.signerKey); err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// sign returns a certificate like another one, in PEM, for a key, that is about to end.
func (h *grpcHub) sign(t *testing.T, like []byte) []byte {
	t.Helper()
	chain, err := cert.ParseCertsPEM(like)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: chain[0].Subject, NotBefore: chain[0].NotBefore,
		NotAfter: time.Now().Add(40 * time.Second), KeyUsage: chain[0].KeyUsage, ExtKeyUsage: chain[0].ExtKeyUsage}
	raw, err := x509.CreateCertificate(rand.Reader, template, h.signer, chain[0].PublicKey, h.signerKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: raw})
}

// startGRPCHub starts a hub whose agents may come by gRPC alone.
func startGRPCHub(t *testing.T) *grpcHub {
	t.Helper()
	dir := t.TempDir()
	h := &grpcHub{dir: dir}
	ca, caKey := h.newSigner(t)
	serving, servingKey, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"ca.crt": ca, "ca.key": caKey, "tls.crt": serving, "tls.key": servingKey} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.ca = serving
	h.Server = env.StartHub(t, "", "--enabled-registration-drivers", "csr,grpc", "--grpc-ca-file", filepath.Join(dir, "ca.crt"), "--grpc-key-file",
		filepath.Join(dir, "ca.key"), "--built-in-addons", "cluster-proxy")
	h.startBroker(t, h.brokerKubeconfig(t, dir))
	return h
}

// startBroker starts the gRPC server at an address of its own.
func (h *grpcHub) startBroker(t *testing.T, kubeconfig string) {
	t.Helper()
	h.address = env.FreeAddress(t)
	_, port, err := net.SplitHostPort(h.address)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(h.dir, "config-"+port+".yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "tls_cert_file: %[1]s/tls.crt\ntls_key_file: %[1]s/tls.key\nclient_ca_file: %[1]s/ca.crt\nserver_bind_port: %[2]q\n",
		h.dir, port), 0o600); err != nil {
		t.Fatal(err)
	}
	h.broker = env.NewProgram(t, nil, "capstan-hub", "grpc-server", "--kubeconfig", kubeconfig, "--server-config", config,
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	if err := h.broker.Start(); err != nil {
		t.Fatal(err)
	}
}

// startReplica starts another gRPC server of the hub.
func (h *grpcHub) startReplica(t *testing.T) *grpcHub {
	t.Helper()
	replica := &grpcHub{Server: h.Server, ca: h.ca, dir: h.dir}
	replica.startBroker(t, filepath.Join(h.dir, "kubeconfig"))
	return replica
}

// brokerKubeconfig has a token of the service account as whom the hub knows the gRPC server.
func (h *grpcHub) brokerKubeconfig(t *testing.T, dir string) string {
	t.Helper()
	c := h.Client(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: fleet.ServiceAccountGRPCServer}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: account.Namespace}}, account.DeepCopy(),
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "grpc-server-of-test"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}},
	} {
		if err := c.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	token := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	config, err := h.Config()
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"server": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"server": {Cluster: "hub", AuthInfo: "server"}},
		CurrentContext: "server",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newAgent lays out an agent that knows nothing but the gRPC server.
func (h *grpcHub) newAgent(t *testing.T, cluster string, flags ...string) (agent *env.Process, hubDir string) {
	t.Helper()
	dir := t.TempDir()
	bootstrap := filepath.Join(dir, "config.yaml")
	content := fmt.Sprintf("url: %s\ntoken: %s\ncaData: %s\n", h.address, h.BootstrapToken(t), base64.StdEncoding.EncodeToString(h.ca))
	if err := os.WriteFile(bootstrap, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	hubDir = filepath.Join(dir, "hub")
	return env.NewProgram(t, nil, "capstan-agent", append([]string{"run", "--registration-auth", "grpc", "--grpc-bootstrap-config", bootstrap,
		"--hub-kubeconfig-dir", hubDir, "--spoke-kubeconfig", framework.Managed.Kubeconfig, "--cluster-name", cluster}, flags...)...), hubDir
}

func configMapWork(cluster, name, value string) *workv1.ManifestWork {
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q},"data":{"a":%q}}`, name, value)
	return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}, Spec: workv1.ManifestWorkSpec{
		Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}}}}}}
}

func awaitAppliedByGRPC(t *testing.T, c client.Client, work *workv1.ManifestWork) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(work), work); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionApplied)
		if cond == nil || cond.Status != metav1.ConditionTrue || cond.ObservedGeneration != work.Generation {
			return fmt.Errorf("work %s: %+v", work.Name, work.Status.Conditions)
		}
		return nil
	})
}

func awaitValue(t *testing.T, name, want string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		found := &corev1.ConfigMap{}
		err := framework.Managed.Client(t).Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, found)
		if want == "" {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, fmt.Errorf("ConfigMap %s is still there", name))
		}
		if err != nil || found.Data["a"] != want {
			return fmt.Errorf("%v, %w", found.Data, err)
		}
		return nil
	})
}

// RG-51 GR-11 CE-01 CE-02 CE-03 CE-05 CE-13 WK-38: an agent joins, reports and works by gRPC alone, also when the gRPC server and the hub
// restart.
func TestAgentByGRPC(t *testing.T) {
	t.Parallel()
	const cluster = "by-grpc"
	h := startGRPCHub(t)
	c := h.Client(t)
	agent, hubDir := h.newAgent(t, cluster, "--workload-source-driver", "grpc")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, c, cluster)
	env.AwaitAvailable(t, c, cluster)
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(t.Context(), requests, client.MatchingLabels{fleet.LabelClusterName: cluster}); err != nil || len(requests.Items) != 1 ||
		requests.Items[0].Spec.SignerName != "open-cluster-management.io/grpc" {
		t.Errorf("requests %+v: %v", requests.Items, err)
	}
	for _, file := range []string{"tls.crt", "tls.key", "cluster-name", "agent-name", "config.yaml"} {
		if _, err := os.Stat(filepath.Join(hubDir, file)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(hubDir, "kubeconfig")); err == nil {
		t.Error("there is a kubeconfig")
	}
	work := configMapWork(cluster, "grpc-work", "one")
	began := time.Now()
	framework.Create(t, c, work)
	awaitAppliedByGRPC(t, c, work)
	t.Logf("work created and applied in %s", time.Since(began))
	awaitValue(t, work.Name, "one")
	// Drift.
	drifted := &corev1.ConfigMap{}
	if err := framework.Managed.Client(t).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: work.Name}, drifted); err != nil {
		t.Fatal(err)
	}
	drifted.Data["a"] = "drifted"
	if err := framework.Managed.Client(t).Update(t.Context(), drifted); err != nil {
		t.Fatal(err)
	}
	awaitValue(t, work.Name, "one")
	// Works that change, come and go while the gRPC server is away.
	gone := configMapWork(cluster, "grpc-gone", "one")
	framework.Create(t, c, gone)
	awaitAppliedByGRPC(t, c, gone)
	if err := h.broker.Stop(); err != nil {
		t.Fatal(err)
	}
	before := work.DeepCopy()
	work.Spec = configMapWork(cluster, work.Name, "two").Spec
	if err := c.Patch(t.Context(), work, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	came := configMapWork(cluster, "grpc-came", "one")
	framework.Create(t, c, came)
	if err := h.broker.Start(); err != nil {
		t.Fatal(err)
	}
	awaitAppliedByGRPC(t, c, work)
	awaitAppliedByGRPC(t, c, came)
	awaitValue(t, work.Name, "two")
	awaitValue(t, gone.Name, "")
	// The hub itself.
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	env.StartServer(t, h.Server)
	for _, one := range []*workv1.ManifestWork{work, came} {
		if err := c.Delete(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		awaitValue(t, one.Name, "")
		env.Eventually(t, func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(one), one.DeepCopy()); !apierrors.IsNotFound(err) {
				return fmt.Errorf("work %s: %w", one.Name, err)
			}
			return nil
		})
	}
}

// joinByGRPC starts an agent that gets works by gRPC, and returns once its cluster is available.
func (h *grpcHub) joinByGRPC(t *testing.T, cluster string) {
	t.Helper()
	agent, _ := h.newAgent(t, cluster, "--workload-source-driver", "grpc")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, h.Client(t), cluster)
	env.AwaitAvailable(t, h.Client(t), cluster)
}

// RG-17 GR-07 WK-14: the agent of a denied cluster, which by gRPC, too, gets works by name alone, removes what a work has applied that is
// deleted then, and gets all works when the cluster is accepted again.
func TestDeniedAgentByGRPC(t *testing.T) {
	t.Parallel()
	const cluster = "denied-by-grpc"
	h := startGRPCHub(t)
	c := h.Client(t)
	h.joinByGRPC(t, cluster)
	work := configMapWork(cluster, "grpc-denied", "one")
	framework.Create(t, c, work)
	awaitAppliedByGRPC(t, c, work)
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	framework.MergePatch(t, c, mc, `{"spec":{"hubAcceptsClient":false}}`)
	framework.AwaitHubAccepted(t, c, cluster, metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied)
	framework.AwaitGone(t, c, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.WorkRoleBinding(cluster)}})
	if err := c.Delete(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	awaitValue(t, work.Name, "")
	framework.AwaitGone(t, c, work)
	framework.MergePatch(t, c, mc, `{"spec":{"hubAcceptsClient":true}}`)
	after := configMapWork(cluster, "grpc-accepted-again", "one")
	framework.AwaitHubAccepted(t, c, cluster, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	framework.Create(t, c, after)
	awaitAppliedByGRPC(t, c, after)
}

// CE-05: an agent by gRPC that runs all the time has works as a restored hub has them, and applies what they are changed to there, under a
// generation that it knows from before.
func TestRestoreByGRPC(t *testing.T) {
	t.Parallel()
	const cluster = "restored-by-grpc"
	h := startGRPCHub(t)
	c := h.Client(t)
	h.joinByGRPC(t, cluster)
	work := configMapWork(cluster, "grpc-restored", "of the backup")
	framework.Create(t, c, work)
	awaitAppliedByGRPC(t, c, work)
	file := filepath.Join(t.TempDir(), "hub.backup")
	h.run(t, "backup", "--kubeconfig", h.Kubeconfig, file)
	change := func(value string) {
		t.Helper()
		before := work.DeepCopy()
		work.Spec = configMapWork(cluster, work.Name, value).Spec
		if err := c.Patch(t.Context(), work, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	change("lost")
	awaitAppliedByGRPC(t, c, work)

	h.Kill()
	if err := os.Rename(filepath.Join(h.Dir, "data"), filepath.Join(h.Dir, "lost")); err != nil {
		t.Fatal(err)
	}
	h.run(t, "restore", "--controlplane-config-dir", h.Dir, file)
	env.StartServer(t, h.Server)
	c = h.Client(t)
	awaitValue(t, work.Name, "of the backup")
	lost := work.Generation
	change("corrected")
	if work.Generation != lost {
		t.Errorf("the generation is %d, want %d", work.Generation, lost)
	}
	awaitValue(t, work.Name, "corrected")
	awaitAppliedByGRPC(t, c, work)
}

// run runs a command of capstan-hub to its end.
func (h *grpcHub) run(t *testing.T, args ...string) {
	t.Helper()
	program, err := env.Binary("capstan-hub")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = env.Environ()
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("capstan-hub %s: %v\n%s", args, err, output)
	}
}

// GR-11: a built-in add-on that needs the API server of the hub says so.
func TestBuiltInAddOnByGRPC(t *testing.T) {
	t.Parallel()
	const cluster = "addon-by-grpc"
	h := startGRPCHub(t)
	c := h.Client(t)
	agent, _ := h.newAgent(t, cluster)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, c, cluster)
	env.AwaitAvailable(t, c, cluster)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.AddOnClusterProxy}}
	framework.Create(t, c, addOn)
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionAvailable)
		if cond == nil || cond.Status != metav1.ConditionFalse || cond.Reason != fleet.ReasonBuiltInNeedsAPI {
			return fmt.Errorf("conditions %+v", addOn.Status.Conditions)
		}
		return nil
	})
}

// RG-51: an agent renews its certificate by gRPC, and goes on with the new one.
func TestRenewalByGRPC(t *testing.T) {
	t.Parallel()
	const cluster = "renewal-by-grpc"
	h := startGRPCHub(t)
	c := h.Client(t)
	agent, hubDir := h.newAgent(t, cluster)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, c, cluster)
	env.AwaitAvailable(t, c, cluster)
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(hubDir, fleet.KeyTLSCert))
	if err != nil {
		t.Fatal(err)
	}
	env.ReplaceFile(t, filepath.Join(hubDir, fleet.KeyTLSCert), h.sign(t, first))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(context.Context) error {
		now, err := os.ReadFile(filepath.Join(hubDir, fleet.KeyTLSCert))
		if err != nil {
			return err
		}
		chain, err := cert.ParseCertsPEM(now)
		if err != nil || time.Until(chain[0].NotAfter) < 5*time.Minute {
			return errors.Join(err, errors.New("the certificate is about to end"))
		}
		return nil
	})
	work := configMapWork(cluster, "grpc-renewed", "one")
	framework.Create(t, c, work)
	awaitAppliedByGRPC(t, c, work)
}
