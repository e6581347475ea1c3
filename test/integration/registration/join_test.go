package registration

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-01 RG-04 RG-05 RG-06 RG-50: nothing is set up before both opt-ins, and the request is exactly that of the OCM API.
func TestJoinNeedsBothOptIns(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	const name = "opt-in"
	agent := env.NewAgent(t, framework.Hub, framework.Managed, name, "", "--agent-id", "agent1", "--spoke-external-server-urls", "https://opt-in.example.com:6443",
		"--client-cert-expiration-seconds", "86400")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{}
	env.Eventually(t, func(ctx context.Context) error {
		requests := &certificatesv1.CertificateSigningRequestList{}
		if err := c.List(ctx, requests, client.MatchingLabels{fleet.LabelClusterName: name}); err != nil || len(requests.Items) != 1 {
			return fmt.Errorf("%d requests: %w", len(requests.Items), err)
		}
		csr = &requests.Items[0]
		return nil
	})
	if !strings.HasPrefix(csr.Name, name+"-") || csr.Spec.SignerName != "kubernetes.io/kube-apiserver-client" ||
		*csr.Spec.ExpirationSeconds != 86400 {
		t.Errorf("request %s, signer %s, expiration %d", csr.Name, csr.Spec.SignerName, *csr.Spec.ExpirationSeconds)
	}
	block, _ := pem.Decode(csr.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	groups := slices.Sorted(slices.Values(request.Subject.Organization))
	if request.Subject.CommonName != "system:open-cluster-management:opt-in:agent1" ||
		!slices.Equal(groups, []string{"system:open-cluster-management:managed-clusters", "system:open-cluster-management:opt-in"}) {
		t.Errorf("the request is for %s of %v", request.Subject.CommonName, groups)
	}
	if err := env.Approve(t.Context(), c, csr); err != nil {
		t.Fatal(err)
	}
	// The certificate alone opens nothing.
	var agentsView client.Client
	env.Eventually(t, func(context.Context) error {
		if _, err := os.Stat(filepath.Join(agent.HubDir, fleet.KeyKubeconfig)); err != nil {
			return err
		}
		agentsView = env.ClientFor(t, agent.HubConfig(t))
		return nil
	})
	mc := framework.ManagedCluster(t, name)
	if err := agentsView.Get(t.Context(), client.ObjectKey{Name: name}, &clusterv1.ManagedCluster{}); !apierrors.IsForbidden(err) {
		t.Errorf("an agent that nobody accepted reads its ManagedCluster: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("a cluster that nobody accepted has a namespace: %v", err)
	}
	if len(mc.Spec.ManagedClusterClientConfigs) != 1 || mc.Spec.ManagedClusterClientConfigs[0].URL != "https://opt-in.example.com:6443" ||
		len(mc.Spec.ManagedClusterClientConfigs[0].CABundle) == 0 {
		t.Errorf("client configs: %+v", mc.Spec.ManagedClusterClientConfigs)
	}
	env.Accept(t, c, name)
	env.AwaitAvailable(t, c, name)
}

// RG-09 RG-16 RG-20 RG-23 RG-24 RG-26 RG-27 SC-20: what there is once a cluster has joined.
func TestJoined(t *testing.T) {
	t.Parallel()
	const name = "joined"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	claims := framework.Managed.Client(t) // the kind is there since the agent is
	framework.Create(t, claims, &clusterv1alpha1.ClusterClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "a-secret.joined.example.com", Labels: map[string]string{fleet.LabelSpokeOnly: ""}},
		Spec:       clusterv1alpha1.ClusterClaimSpec{Value: "hidden"},
	})
	framework.Create(t, claims, &clusterv1alpha1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "region.joined.example.com"},
		Spec: clusterv1alpha1.ClusterClaimSpec{Value: "north"}})
	env.Eventually(t, func(context.Context) error {
		if have := framework.ManagedCluster(t, name).Status.ClusterClaims; !slices.Contains(have,
			clusterv1.ManagedClusterClaim{Name: "region.joined.example.com", Value: "north"}) {
			return fmt.Errorf("claims: %v", have)
		}
		return nil
	})
	mc := framework.ManagedCluster(t, name)
	for kind, reason := range map[string]string{
		"HubAcceptedManagedCluster": "HubClusterAdminAccepted", "ManagedClusterJoined": "ManagedClusterJoined",
		"ManagedClusterConditionAvailable": "ManagedClusterAvailable",
		"ClusterCertificateRotated":        "ClientCertificateUpdated",
	} {
		if cond := meta.FindStatusCondition(mc.Status.Conditions, kind); cond == nil || cond.Reason != reason {
			t.Errorf("condition %s: %+v, want reason %s", kind, cond, reason)
		}
	}
	if !slices.Contains(mc.Finalizers, "cluster.open-cluster-management.io/api-resource-cleanup") {
		t.Errorf("finalizers: %v", mc.Finalizers)
	}
	if !strings.HasPrefix(mc.Status.Version.Kubernetes, "v1.") {
		t.Errorf("version: %q", mc.Status.Version.Kubernetes)
	}
	nodes := &corev1.NodeList{}
	if err := framework.Managed.Client(t).List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	if want := nodes.Items[0].Status.Capacity.Cpu(); !mc.Status.Capacity.Cpu().Equal(*want) || mc.Status.Allocatable.Cpu().IsZero() {
		t.Errorf("capacity %v, allocatable %v, want %s CPUs", mc.Status.Capacity, mc.Status.Allocatable, want)
	}
	if slices.ContainsFunc(mc.Status.ClusterClaims, func(c clusterv1.ManagedClusterClaim) bool { return c.Value == "hidden" }) {
		t.Errorf("a spoke-only claim is reported: %v", mc.Status.ClusterClaims)
	}
	c := framework.Hub.Client(t)
	lease := &coordinationv1.Lease{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Namespace: name, Name: "managed-cluster-lease"}, lease); err != nil {
			return err
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(mc.CreationTimestamp.Time) {
			return errors.New("the lease is not renewed")
		}
		return nil
	})
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, lease,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:managedcluster:joined"}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:managedcluster:joined"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "open-cluster-management:managedcluster:joined:registration"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "open-cluster-management:managedcluster:joined:work"}},
	} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Error(err)
		} else if o.GetLabels()["open-cluster-management.io/cluster-name"] != name {
			t.Errorf("%T %s has labels %v", o, o.GetName(), o.GetLabels())
		}
	}
	checkHubKubeconfig(t, agent)
}

func checkHubKubeconfig(t *testing.T, agent *env.Agent) {
	t.Helper()
	kubeconfig, err := clientcmd.LoadFromFile(filepath.Join(agent.HubDir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	current := kubeconfig.Contexts["default-context"]
	if kubeconfig.CurrentContext != "default-context" || current.AuthInfo != "default-auth" || current.Namespace != "configuration" ||
		current.Cluster != "hub" {
		t.Errorf("hub kubeconfig: %+v", kubeconfig)
	}
	for _, file := range []string{"kubeconfig", "tls.crt", "tls.key", "cluster-name", "agent-name"} {
		info, err := os.Stat(filepath.Join(agent.HubDir, file))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", file, info.Mode())
		}
	}
}

// RG-27: a claim appears and changes on the hub as it does on the cluster.
func TestClaimsFollow(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "claims")
	c := framework.Managed.Client(t)
	claim := &clusterv1alpha1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "zone.claims.example.com"},
		Spec: clusterv1alpha1.ClusterClaimSpec{Value: "a"}}
	framework.Create(t, c, claim)
	for _, value := range []string{"a", "b"} {
		claim.Spec.Value = value
		if err := c.Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, func(context.Context) error {
			mc := framework.ManagedCluster(t, "claims")
			if !slices.Contains(mc.Status.ClusterClaims, clusterv1.ManagedClusterClaim{Name: claim.Name, Value: value}) {
				return fmt.Errorf("claims: %v", mc.Status.ClusterClaims)
			}
			return nil
		})
	}
}

// RG-02: a wrong token is refused with a message that says what to do, and a right one, put in its place, is taken up.
func TestWrongToken(t *testing.T) {
	t.Parallel()
	agent := env.NewAgent(t, framework.Hub, framework.Managed, "wrong-token", "abcdef.0123456789abcdef")
	refusedThenJoins(t, agent, "wrong-token")
}

// RG-02: the same of a token that has expired.
func TestExpiredToken(t *testing.T) {
	t.Parallel()
	expired := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-exp1re"},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": "exp1re", "token-secret": "0123456789abcdef", "expiration": "2020-01-01T00:00:00Z",
			"usage-bootstrap-authentication": "true", "auth-extra-groups": fleet.GroupBootstrap,
		},
	}
	framework.Create(t, framework.Hub.Client(t), expired)
	agent := env.NewAgent(t, framework.Hub, framework.Managed, "expired-token", "exp1re.0123456789abcdef")
	refusedThenJoins(t, agent, "expired-token")
}

func refusedThenJoins(t *testing.T, agent *env.Agent, name string) {
	t.Helper()
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(context.Context) error {
		if log := agent.Log(); !strings.Contains(log, "does not accept the bootstrap credential") || !strings.Contains(log, "capstan get token") {
			return fmt.Errorf("the log does not say that the token is refused, and what to do:\n%s", log)
		}
		return nil
	})
	if err := framework.Hub.Client(t).Get(t.Context(), client.ObjectKey{Name: name}, &clusterv1.ManagedCluster{}); !apierrors.IsNotFound(err) {
		t.Errorf("an agent without a valid token has made a ManagedCluster: %v", err)
	}
	agent.WriteBootstrap(t, framework.Hub, framework.Hub.BootstrapToken(t))
	env.Accept(t, framework.Hub.Client(t), name)
	env.AwaitAvailable(t, framework.Hub.Client(t), name)
}

// RG-01: a second agent under a name that is taken gets nothing without an administrator, and is told so.
func TestNameClash(t *testing.T) {
	t.Parallel()
	const name = "clash"
	env.Join(t, framework.Hub, framework.Managed, name)
	second := env.NewAgent(t, framework.Hub, framework.Managed, name, "", "--agent-id", "second")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(context.Context) error {
		if !strings.Contains(second.Log(), "A cluster of this name has joined the hub before") {
			return fmt.Errorf("no warning in the log:\n%s", second.Log())
		}
		return nil
	})
	requests := &certificatesv1.CertificateSigningRequestList{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := framework.Hub.Client(t).List(ctx, requests, client.MatchingLabels{fleet.LabelClusterName: name}); err != nil ||
			len(requests.Items) != 2 {
			return fmt.Errorf("%d requests: %w", len(requests.Items), err)
		}
		return nil
	})
	pending := 0
	for _, csr := range requests.Items {
		if len(csr.Status.Conditions) == 0 {
			pending++
		}
	}
	if pending != 1 {
		t.Errorf("%d requests are pending, want that of the second agent", pending)
	}
}

// RG-07: a denied request is not made again until a user deletes it.
func TestDeniedRequest(t *testing.T) {
	t.Parallel()
	const name = "denied"
	c := framework.Hub.Client(t)
	agent := env.NewAgent(t, framework.Hub, framework.Managed, name, "")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	requests := &certificatesv1.CertificateSigningRequestList{}
	list := func(ctx context.Context) error {
		if err := c.List(ctx, requests, client.MatchingLabels{fleet.LabelClusterName: name}); err != nil || len(requests.Items) != 1 {
			return fmt.Errorf("%d requests: %w", len(requests.Items), err)
		}
		return nil
	}
	env.Eventually(t, list)
	csr := &requests.Items[0]
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Test", Message: "no such cluster",
	}}
	if err := c.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(context.Context) error {
		// Twice: the second attempt met the denial of the first.
		if strings.Count(agent.Log(), "no such cluster") < 2 {
			return fmt.Errorf("the denial is not in the log:\n%s", agent.Log())
		}
		return nil
	})
	if err := list(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, c, name)
	env.AwaitAvailable(t, c, name)
}

// RG-08 RG-15: an accepted agent renews its own identity without an administrator, and no other.
func TestRenewal(t *testing.T) {
	t.Parallel()
	const name = "renewal"
	agent := env.Join(t, framework.Hub, framework.Managed, name, "--agent-id", "agent1")
	renewer, err := hubclient.New(agent.HubConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	own := &clientcert.Requester{Hub: renewer, Identity: identity.Identity{Cluster: name, Agent: "agent1"}}
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	certificate, _, err := own.Request(patient)
	if err != nil || len(certificate) == 0 {
		t.Fatalf("the renewal of the own identity: %v", err)
	}
	foreign := identity.Identity{Cluster: name, Agent: "agent2"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _, _ = (&clientcert.Requester{Hub: renewer, Identity: foreign}).Request(ctx) }()
	var csr *certificatesv1.CertificateSigningRequest
	env.Eventually(t, func(ctx context.Context) error {
		csr, err = requestFor(ctx, framework.Hub.Client(t), foreign)
		return err
	})
	// The controller works through requests in order: once a later one is decided, this one has been judged.
	if _, _, err := own.Request(patient); err != nil {
		t.Fatal(err)
	}
	if err := framework.Hub.Client(t).Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
		t.Fatal(err)
	}
	if len(csr.Status.Conditions) > 0 {
		t.Errorf("a request for %s by another identity is decided: %+v", foreign.User(), csr.Status.Conditions)
	}
	ofAnother := &clientcert.Requester{Hub: renewer, Identity: identity.Identity{Cluster: "renewal-of-another", Agent: "agent1"}}
	if _, _, err := ofAnother.Request(patient); !apierrors.IsForbidden(err) {
		t.Errorf("a request for another cluster: %v", err)
	}
}

func requestFor(ctx context.Context, c client.Client, id identity.Identity) (*certificatesv1.CertificateSigningRequest, error) {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(ctx, requests, client.MatchingLabels{fleet.LabelClusterName: id.Cluster}); err != nil {
		return nil, err
	}
	for i := range requests.Items {
		block, _ := pem.Decode(requests.Items[i].Spec.Request)
		if request, err := x509.ParseCertificateRequest(block.Bytes); err == nil && request.Subject.CommonName == id.User() &&
			strings.HasPrefix(requests.Items[i].Spec.Username, "system:open-cluster-management:renewal:") {
			return &requests.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no request for %s", id.User())
}

// RG-08: the certificate is renewed when between a fifth and a quarter of its life is left, not before.
func TestRotation(t *testing.T) {
	t.Parallel()
	const name = "rotation"
	agent := env.Join(t, framework.Hub, framework.Managed, name, "--agent-id", "agent1")
	renewer, err := hubclient.New(agent.HubConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	store := &hubkubeconfig.Store{Dir: agent.HubDir}
	before, err := store.Load()
	if err != nil {
		t.Fatal(err)
	}
	notBefore, notAfter, err := before.Lifetime()
	if err != nil {
		t.Fatal(err)
	}
	at := func(share float64) time.Time {
		return notBefore.Add(time.Duration(share * float64(notAfter.Sub(notBefore))))
	}
	clk := clocktesting.NewFakeClock(at(0.01))
	recorded, conditions := make(chan string, 100), make(chan metav1.Condition, 100)
	record := func(_, reason, _, _ string, _ ...any) { recorded <- reason }
	rotation := &clientcert.Rotation{
		Requester: &clientcert.Requester{Hub: renewer, Identity: identity.Identity{Cluster: name, Agent: "agent1"}, Record: record},
		Store:     store, Identity: identity.Identity{Cluster: name, Agent: "agent1"}, Clock: clk,
		Report: func(cond metav1.Condition) { conditions <- cond },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rotation.Start(ctx) }()
	waiting := func(context.Context) error {
		if !clk.HasWaiters() {
			return errors.New("the rotation does not wait")
		}
		return nil
	}
	env.Eventually(t, waiting)
	clk.SetTime(at(0.749))
	env.Eventually(t, waiting)
	if early, err := store.Load(); err != nil || string(early.Certificate) != string(before.Certificate) {
		t.Errorf("the certificate is renewed with more than a quarter of its life left: %v", err)
	}
	clk.SetTime(at(0.801))
	env.Eventually(t, func(context.Context) error {
		after, err := store.Load()
		if err != nil || string(after.Certificate) == string(before.Certificate) {
			return fmt.Errorf("the certificate is not renewed: %w", err)
		}
		return after.Valid(identity.Identity{Cluster: name, Agent: "agent1"}, time.Now())
	})
	// RG-11, and the conditions and events of the OCM API.
	after, err := store.Load()
	if err != nil {
		t.Fatal(err)
	}
	want, err := clientcert.Condition(after)
	if err != nil {
		t.Fatal(err)
	}
	for got := (metav1.Condition{}); got != want; {
		select {
		case got = <-conditions:
		case <-time.After(time.Minute):
			t.Fatalf("no condition %+v", want)
		}
	}
	// By this clock the next certificate is due as well. There is a pause between two renewals all the same.
	env.Eventually(t, waiting)
	if n := len(framework.Requests(t, name)); n != 2 {
		t.Errorf("%d requests, want that to join and that to renew", n)
	}
	for _, want := range []string{fleet.EventCertificateRotationStarted, fleet.EventCSRCreated, fleet.EventClientCertificateCreated} {
		if got := env.Receive(t, recorded); got != want {
			t.Errorf("event %s, want %s", got, want)
		}
	}
	cancel()
	if err := env.Receive(t, ended); err != nil {
		t.Errorf("the rotation ended with %v", err)
	}
	// Started again when the certificate has expired, it says so, for the agent to bootstrap again.
	clk.SetTime(notAfter.Add(24 * time.Hour))
	if err := rotation.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired certificate: %v", err)
	}
}
