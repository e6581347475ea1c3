package integration

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

const testSigner = "example.com/hello"

// addOnManager plays the manager of an add-on on the hub: it approves the requests of a cluster's add-ons, and signs those for
// testSigner.
type addOnManager struct {
	mu       sync.Mutex
	asked    map[string][]time.Time // by add-on and signer
	lifetime time.Duration          // of what it signs
}

func manageAddOns(t *testing.T, cluster string, lifetime time.Duration) *addOnManager {
	t.Helper()
	return manageAddOnsOn(t, hub, cluster, lifetime)
}

func manageAddOnsOn(t *testing.T, hub *env.Server, cluster string, lifetime time.Duration) *addOnManager {
	t.Helper()
	m := &addOnManager{asked: map[string][]time.Time{}, lifetime: lifetime}
	admin := hub.Client(t)
	w, err := admin.Watch(t.Context(), &certificatesv1.CertificateSigningRequestList{}, client.MatchingLabels(ofCluster(cluster)),
		client.HasLabels{fleet.LabelAddOnName})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			csr, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || len(csr.Status.Conditions) > 0 {
				continue
			}
			if err := m.grant(t.Context(), admin, csr); err != nil && t.Context().Err() == nil {
				t.Errorf("grant %s: %v", csr.Name, err)
			}
		}
	}()
	return m
}

func (m *addOnManager) grant(ctx context.Context, admin client.Client, csr *certificatesv1.CertificateSigningRequest) error {
	m.mu.Lock()
	asker := csr.Labels[fleet.LabelAddOnName] + " " + csr.Spec.SignerName
	m.asked[asker] = append(m.asked[asker], time.Now())
	m.mu.Unlock()
	if err := env.Approve(ctx, admin, csr); err != nil {
		return err
	}
	if csr.Spec.SignerName != testSigner {
		return nil
	}
	block, _ := pem.Decode(csr.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	ca, _, err := hubkubeconfig.NewKey()
	if err != nil {
		return err
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: request.Subject, DNSNames: request.DNSNames, NotBefore: now.Truncate(time.Second),
		NotAfter: now.Add(m.lifetime),
	}, &x509.Certificate{Subject: pkix.Name{CommonName: "test"}}, request.PublicKey, ca)
	if err != nil {
		return err
	}
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return admin.SubResource("status").Update(ctx, csr)
}

func (m *addOnManager) times(addOn, signer string) int { return len(m.requests(addOn, signer)) }

// requests are when the add-on has asked for a certificate.
func (m *addOnManager) requests(addOn, signer string) []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked[addOn+" "+signer])
}

// newAddOn makes an add-on on a cluster as its manager would: with what its agent registers for.
func newAddOn(t *testing.T, cluster, name, namespace string,
	registrations ...addonv1beta1.RegistrationConfig) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	create(t, hub.Client(t), addOn)
	changeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		status.Namespace, status.Registrations = namespace, registrations
	})
	return addOn
}

// changeAddOn changes the status of an add-on as an administrator of the hub.
func changeAddOn(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, change func(*addonv1beta1.ManagedClusterAddOnStatus)) {
	t.Helper()
	admin := hub.Client(t)
	env.Eventually(t, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		change(&addOn.Status)
		return admin.Status().Update(ctx, addOn)
	})
}

func kubeClient(cluster, addOn string) addonv1beta1.RegistrationConfig {
	return addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient, KubeClient: &addonv1beta1.KubeClientConfig{
		Subject: addonv1beta1.KubeClientSubject{User: fleet.AddOnUser(cluster, addOn, "agent"), Groups: fleet.AddOnGroups(cluster, addOn)},
	}}
}

func customSigner(user string) addonv1beta1.RegistrationConfig {
	return addonv1beta1.RegistrationConfig{Type: addonv1beta1.CustomSigner, CustomSigner: &addonv1beta1.CustomSignerConfig{
		SignerName: testSigner, Subject: addonv1beta1.Subject{User: user, Groups: []string{"g1"}, OrganizationUnits: []string{"u1"}},
	}}
}

// awaitSecret waits until a Secret holds these keys alone and passes the check.
func awaitSecret(t *testing.T, c client.Client, namespace, name string, keys []string, check func(*corev1.Secret) error) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	env.Eventually(t, func(ctx context.Context) error {
		*secret = corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
			return err
		}
		if got := slices.Sorted(maps.Keys(secret.Data)); !slices.Equal(got, keys) {
			return fmt.Errorf("Secret %s holds %q, want %q", name, got, keys)
		}
		return check(secret)
	})
	return secret
}

func anySecret(*corev1.Secret) error { return nil }

// fresh wants another credential than that of a Secret before.
func fresh(before *corev1.Secret, key string) func(*corev1.Secret) error {
	return func(now *corev1.Secret) error {
		if string(now.Data[key]) == string(before.Data[key]) {
			return errors.New("it is still the same credential")
		}
		return nil
	}
}

var (
	kubeKeys = []string{"kubeconfig", "tls.crt", "tls.key"}
	certKeys = []string{"tls.crt", "tls.key"}
)

// configOf is the client configuration of the agent of an add-on, which mounts the Secret.
func configOf(t *testing.T, secret *corev1.Secret) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	for name, content := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func awaitAddOn(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, condition string, status metav1.ConditionStatus, reason,
	words string) {
	t.Helper()
	awaitObject(t, hub.Client(t), addOn, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		cond := meta.FindStatusCondition(addOn.Status.Conditions, condition)
		if cond == nil || cond.Status != status || cond.Reason != reason || !strings.Contains(cond.Message, words) {
			return fmt.Errorf("want %s=%s %s %q, have %+v", condition, status, reason, words, addOn.Status.Conditions)
		}
		return nil
	})
}

// RG-60 RG-61 RG-62 RG-64 RG-09: the agent gets the agents of two add-ons their access to the hub, each in its namespace, under
// the identity that the hub says, and takes it away when the registration goes.
func TestAddOnRegistration(t *testing.T) {
	t.Parallel()
	const cluster, first, second, namespace = "addonreg", "addonreg-first", "addonreg-second", "addonreg-ns"
	agent := env.Join(t, hub, managed, cluster)
	manager := manageAddOns(t, cluster, time.Hour)
	h, m := hub.Client(t), managed.Client(t)
	one := newAddOn(t, cluster, first, namespace, kubeClient(cluster, first), customSigner("hello"))
	two := newAddOn(t, cluster, second, "", addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient})

	secret := awaitSecret(t, m, namespace, first+"-hub-kubeconfig", kubeKeys, anySecret)
	who := whoIs(t, configOf(t, secret))
	if want := append(fleet.AddOnGroups(cluster, first), "system:authenticated"); who.Username != fleet.AddOnUser(cluster, first, "agent") ||
		!slices.Equal(slices.Sorted(slices.Values(who.Groups)), slices.Sorted(slices.Values(want))) {
		t.Errorf("the add-on is %+v", who)
	}
	checkAddOnKubeconfig(t, agent, secret)
	ns := &corev1.Namespace{}
	if err := m.Get(t.Context(), client.ObjectKey{Name: namespace}, ns); err != nil || ns.Labels[fleet.LabelAddOnAgentNamespace] != "true" {
		t.Errorf("the namespace that the agent made has labels %v: %v", ns.Labels, err)
	}
	custom := awaitSecret(t, m, namespace, first+"-example.com-hello-client-cert", certKeys, anySecret)
	leaf, err := cert.ParseCertsPEM(custom.Data["tls.crt"])
	if err != nil || leaf[0].Subject.String() != "CN=hello,OU=u1,O=g1" ||
		!slices.Equal(leaf[0].DNSNames, []string{first + ".addon.open-cluster-management.io"}) {
		t.Errorf("a certificate of %v: %v", leaf, err)
	}
	awaitAddOn(t, one, "ClusterCertificateRotated", metav1.ConditionTrue, "ClientCertificateUpdated", "valid from")
	// An identity that is not given is the default one.
	other := awaitSecret(t, m, fleet.NamespaceAgentAddOn, second+"-hub-kubeconfig", kubeKeys, anySecret)
	if who := whoIs(t, configOf(t, other)); who.Username != fleet.AddOnUser(cluster, second, second) ||
		!slices.Contains(who.Groups, fleet.AddOnGroup(cluster, second)) {
		t.Errorf("the second add-on is %+v", who)
	}
	awaitObject(t, h, two, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if k := addOn.Status.Registrations[0].KubeClient; k == nil || k.Driver != addonv1beta1.KubeClientDriverCSR {
			return fmt.Errorf("the driver is not declared: %+v", k)
		}
		return nil
	})

	// What a user removes is there again, and a key that is spoilt is replaced, with a certificate of its own.
	if err := m.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	again := awaitSecret(t, m, namespace, secret.Name, kubeKeys, fresh(secret, "tls.crt"))
	mergePatch(t, m, again, `{"data":{"tls.key":null}}`)
	again = awaitSecret(t, m, namespace, secret.Name, kubeKeys, fresh(again, "tls.crt"))
	mergePatch(t, m, again, `{"data":{"kubeconfig":"Zm9v"},"metadata":{"labels":null}}`)
	awaitSecret(t, m, namespace, secret.Name, kubeKeys, func(now *corev1.Secret) error {
		if string(now.Data["kubeconfig"]) != string(secret.Data["kubeconfig"]) || string(now.Data["tls.crt"]) != string(again.Data["tls.crt"]) ||
			now.Labels[fleet.LabelAddOnName] != first {
			return errors.New("the kubeconfig is not put back")
		}
		return nil
	})
	if n := manager.times(first, fleet.SignerKubeAPIServerClient); n != 3 {
		t.Errorf("%d certificates were asked for, want 3", n)
	}

	// The identity changes, and then the registration goes.
	changeAddOn(t, one, func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		status.Registrations[1].CustomSigner.Subject.User = "bye"
	})
	awaitSecret(t, m, namespace, custom.Name, certKeys, fresh(custom, "tls.crt"))
	changeAddOn(t, one, func(status *addonv1beta1.ManagedClusterAddOnStatus) { status.Registrations = status.Registrations[:1] })
	awaitGone(t, m, custom)
	if err := h.Delete(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, m, again)

	// What goes while the agent is away is removed when it is back.
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	foreign := other.DeepCopy()
	foreign.ObjectMeta = metav1.ObjectMeta{Namespace: other.Namespace, Name: "addonreg-of-another-hub", Labels: other.Labels,
		Annotations: map[string]string{fleet.AnnotationHubHash: "x"}}
	create(t, m, foreign)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, m, other)
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("the Secret for another hub: %v", err)
	}
}

// checkAddOnKubeconfig holds the kubeconfig of an add-on against the agent's own.
func checkAddOnKubeconfig(t *testing.T, agent *env.Agent, secret *corev1.Secret) {
	t.Helper()
	own, err := clientcmd.LoadFromFile(filepath.Join(agent.HubDir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	current, user := config.Contexts["default-context"], config.AuthInfos["default-auth"]
	if config.CurrentContext != "default-context" || current == nil || current.AuthInfo != "default-auth" ||
		current.Namespace != "configuration" || current.Cluster != "hub" ||
		user == nil || user.ClientCertificate != "tls.crt" || user.ClientKey != "tls.key" {
		t.Errorf("the kubeconfig of the add-on is laid out otherwise: %s", secret.Data["kubeconfig"])
		return
	}
	if got, want := config.Clusters["hub"], own.Clusters["hub"]; got.Server != want.Server || got.ProxyURL != want.ProxyURL ||
		string(got.CertificateAuthorityData) != string(want.CertificateAuthorityData) {
		t.Errorf("the add-on reaches the hub by another way: %s", secret.Data["kubeconfig"])
	}
}

// RG-08 RG-60: certificates are renewed, as often as their lifetime asks for and no more often. The Secret of an add-on that is being
// deleted stays.
func TestAddOnRotation(t *testing.T) {
	t.Parallel()
	const cluster, name, namespace = "addonrotate", "addonrotate", "addonrotate-ns"
	const lifetime = 8 * time.Second
	env.Join(t, hub, managed, cluster)
	manager := manageAddOns(t, cluster, lifetime)
	m := managed.Client(t)
	began := time.Now()
	addOn := newAddOn(t, cluster, name, namespace, customSigner("hello"))
	secret := awaitSecret(t, m, namespace, name+"-example.com-hello-client-cert", certKeys, anySecret)
	for i := range 2 {
		before := secret
		secret = awaitSecret(t, m, namespace, secret.Name, certKeys, fresh(before, "tls.crt"))
		old, err := cert.ParseCertsPEM(before.Data["tls.crt"])
		if err != nil {
			t.Fatal(err)
		}
		// How late it is asked for depends on the machine, how early does not.
		early := old[0].NotBefore.Add(lifetime / 2)
		if asked := manager.requests(name, testSigner)[i+1]; asked.Before(early) {
			t.Errorf("a new certificate was asked for at %s, before the old one had lived for half of its time, at %s", asked, early)
		}
	}
	if n, most := manager.times(name, testSigner), 2+int(time.Since(began)/(lifetime/2)); n > most {
		t.Errorf("%d certificates in %s, %d would do", n, time.Since(began), most)
	}
	mergePatch(t, hub.Client(t), addOn, `{"metadata":{"finalizers":["example.com/test"]}}`)
	if err := hub.Client(t).Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	changeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) { status.Registrations = nil })
	awaitObject(t, hub.Client(t), addOn, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if meta.FindStatusCondition(addOn.Status.Conditions, "ClusterCertificateRotated") != nil {
			return errors.New("the agent has not seen that the registration is gone")
		}
		return nil
	})
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Errorf("the Secret of an add-on that is being deleted: %v", err)
	}
	mergePatch(t, hub.Client(t), addOn, `{"metadata":{"finalizers":null}}`)
	awaitGone(t, m, secret)
}

// RG-07 RG-64: a request that is denied is told of, and made again when the denied one is gone. The key survives a restart of the agent.
func TestAddOnRequestIsDenied(t *testing.T) {
	t.Parallel()
	const cluster, name = "addondeny", "addondeny"
	agent := env.Join(t, hub, managed, cluster)
	h := hub.Client(t)
	addOn := newAddOn(t, cluster, name, name, kubeClient(cluster, name))
	waiting := addOnRequests(t, cluster, name, 1)[0]
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, agent.Process, "Request for a certificate taken up again", 1)
	waiting.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
		Status: corev1.ConditionTrue, Reason: "Test", Message: "no add-ons here"}}
	if err := h.SubResource("approval").Update(t.Context(), &waiting); err != nil {
		t.Fatal(err)
	}
	awaitAddOn(t, addOn, "ClusterCertificateRotated", metav1.ConditionFalse, "ClientCertificateUpdateFailed", "no add-ons here")
	if err := h.Delete(t.Context(), &waiting); err != nil {
		t.Fatal(err)
	}
	manageAddOns(t, cluster, time.Hour)
	awaitSecret(t, managed.Client(t), name, name+"-hub-kubeconfig", kubeKeys, anySecret)
	awaitAddOn(t, addOn, "ClusterCertificateRotated", metav1.ConditionTrue, "ClientCertificateUpdated", "")
	addOnRequests(t, cluster, name, 1)
}

func addOnRequests(t *testing.T, cluster, addOn string, n int) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := hub.Client(t).List(ctx, list, client.MatchingLabels{fleet.LabelClusterName: cluster, fleet.LabelAddOnName: addOn}); err != nil {
			return err
		}
		if len(list.Items) != n {
			return fmt.Errorf("%d requests of add-on %s, want %d", len(list.Items), addOn, n)
		}
		return nil
	})
	return list.Items
}

// hostingClusterIsValid is what the manager of an add-on that knows hosted mode says when it has found the hosting cluster.
var hostingClusterIsValid = metav1.Condition{Type: fleet.ConditionHostingClusterValidity, Status: metav1.ConditionTrue,
	Reason: fleet.ReasonHostingClusterValid}

// RG-60: what an add-on in hosted mode registers for goes to the cluster that the agent runs in, and nothing to the managed one.
func TestHostedAddOnRegistration(t *testing.T) {
	t.Parallel()
	const cluster, name = "addonhosted", "addonhosted"
	env.Join(t, hub, managed, cluster, "--kubeconfig", hub.Kubeconfig)
	manageAddOns(t, cluster, time.Hour)
	hosting := hub.Client(t)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster, Name: name, Annotations: map[string]string{fleet.AnnotationHostingClusterName: "local",
			fleet.AnnotationInstallNamespace: name},
	}}
	create(t, hosting, addOn)
	changeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		status.Registrations = []addonv1beta1.RegistrationConfig{kubeClient(cluster, name)}
		meta.SetStatusCondition(&status.Conditions, hostingClusterIsValid)
	})
	secret := awaitSecret(t, hosting, name, name+"-hub-kubeconfig", kubeKeys, anySecret)
	if err := managed.Client(t).Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the managed cluster has it, too: %v", err)
	}
	if err := hosting.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, hosting, secret)
}

// RG-09 RG-10: the way to the hub changes for add-ons as it does for the agent: by another proxy, with another CA. Their certificates
// stay.
func TestAddOnsGoTheAgentsWay(t *testing.T) {
	t.Parallel()
	const cluster, name = "addonway", "addonway"
	agent := env.Join(t, hub, managed, cluster)
	manager := manageAddOns(t, cluster, time.Hour)
	newAddOn(t, cluster, name, name, kubeClient(cluster, name))
	before := awaitSecret(t, managed.Client(t), name, name+"-hub-kubeconfig", kubeKeys, anySecret)
	proxy := startProxy(t, true, nil)
	withCA(t, agent, anotherCA(t))
	awaitSecret(t, managed.Client(t), name, before.Name, kubeKeys, trusting(string(anotherCA(t)), ""))
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	behind(t, agent, proxy.URL, proxy.CA())
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	now := awaitSecret(t, managed.Client(t), name, before.Name, kubeKeys, trusting(string(proxy.CA()), proxy.URL))
	if string(now.Data["tls.crt"]) != string(before.Data["tls.crt"]) || manager.times(name, fleet.SignerKubeAPIServerClient) != 1 {
		t.Error("there is another certificate")
	}
	checkAddOnKubeconfig(t, agent, now)
}

// trusting wants a kubeconfig with a CA in its bundle, and with a proxy.
func trusting(ca, proxyURL string) func(*corev1.Secret) error {
	return func(secret *corev1.Secret) error {
		config, err := clientcmd.Load(secret.Data["kubeconfig"])
		if err != nil {
			return err
		}
		if way := config.Clusters["hub"]; way.ProxyURL != proxyURL || !strings.Contains(string(way.CertificateAuthorityData), ca) {
			return fmt.Errorf("the kubeconfig is still %s", secret.Data["kubeconfig"])
		}
		return nil
	}
}
