package framework

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
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
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// RegisteredOn makes an add-on on a hub, as one that has come back from a backup: its status says that all is well.
func RegisteredOn(t *testing.T, admin client.Client, cluster, name string,
	registrations ...addonv1beta1.RegistrationConfig) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	Create(t, admin, addOn)
	addOn.Status = addonv1beta1.ManagedClusterAddOnStatus{Namespace: name, Registrations: registrations, Conditions: []metav1.Condition{{
		Type: fleet.ConditionCertificateRotated, Status: metav1.ConditionTrue, Reason: fleet.ReasonClientCertificateUpdated,
		Message: "from before", LastTransitionTime: metav1.Now(),
	}}}
	if err := admin.Status().Update(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	return addOn
}

// Signer is the signer of the certificates that add-ons of the tests ask for.
const Signer = "example.com/hello"

// AddOnManager plays the manager of an add-on on the hub: it approves the requests of a cluster's add-ons, and signs those for
// Signer.
type AddOnManager struct {
	mu       sync.Mutex
	asked    map[string][]time.Time // by add-on and signer
	lifetime time.Duration          // of what it signs
}

// ManageAddOnsOn plays the managers of the add-ons of a cluster until the test ends: it approves what their agents ask for, and signs it
// for so long.
func ManageAddOnsOn(t *testing.T, hub *env.Server, cluster string, lifetime time.Duration) *AddOnManager {
	t.Helper()
	m := &AddOnManager{asked: map[string][]time.Time{}, lifetime: lifetime}
	admin := hub.Client(t)
	w, err := admin.Watch(t.Context(), &certificatesv1.CertificateSigningRequestList{}, client.MatchingLabels(OfCluster(cluster)),
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

func (m *AddOnManager) grant(ctx context.Context, admin client.Client, csr *certificatesv1.CertificateSigningRequest) error {
	m.mu.Lock()
	asker := csr.Labels[fleet.LabelAddOnName] + " " + csr.Spec.SignerName
	m.asked[asker] = append(m.asked[asker], time.Now())
	m.mu.Unlock()
	if err := env.Approve(ctx, admin, csr); err != nil {
		return err
	}
	if csr.Spec.SignerName != Signer {
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

// Times is how often the add-on has asked for a certificate.
func (m *AddOnManager) Times(addOn, signer string) int { return len(m.Requests(addOn, signer)) }

// Requests are when the add-on has asked for a certificate.
func (m *AddOnManager) Requests(addOn, signer string) []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked[addOn+" "+signer])
}

// NewAddOn makes an add-on on a cluster as its manager would: with what its agent registers for.
func NewAddOn(t *testing.T, cluster, name, namespace string,
	registrations ...addonv1beta1.RegistrationConfig) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	Create(t, Hub.Client(t), addOn)
	ChangeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		status.Namespace, status.Registrations = namespace, registrations
	})
	return addOn
}

// ChangeAddOn changes the status of an add-on as an administrator of the hub.
func ChangeAddOn(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, change func(*addonv1beta1.ManagedClusterAddOnStatus)) {
	t.Helper()
	admin := Hub.Client(t)
	env.Eventually(t, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		change(&addOn.Status)
		return admin.Status().Update(ctx, addOn)
	})
}

// KubeClient is a registration for the API of the hub.
func KubeClient(cluster, addOn string) addonv1beta1.RegistrationConfig {
	return addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient, KubeClient: &addonv1beta1.KubeClientConfig{
		Subject: addonv1beta1.KubeClientSubject{User: fleet.AddOnUser(cluster, addOn, "agent"), Groups: fleet.AddOnGroups(cluster, addOn)},
	}}
}

// AwaitSecret waits until a Secret holds these keys alone and passes the check.
func AwaitSecret(t *testing.T, c client.Client, namespace, name string, keys []string, check func(*corev1.Secret) error) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	env.Eventually(t, func(ctx context.Context) error {
		*secret = corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
			return err
		}
		if got := slices.Sorted(maps.Keys(secret.Data)); !slices.Equal(got, keys) {
			return fmt.Errorf("the Secret %s holds %q, want %q", name, got, keys)
		}
		return check(secret)
	})
	return secret
}

// AnySecret takes any Secret.
func AnySecret(*corev1.Secret) error { return nil }

// Fresh wants another credential than that of a Secret before.
func Fresh(before *corev1.Secret, key string) func(*corev1.Secret) error {
	return func(now *corev1.Secret) error {
		if string(now.Data[key]) == string(before.Data[key]) {
			return errors.New("it is still the same credential")
		}
		return nil
	}
}

// KubeKeys are those of the Secret of an add-on that registers for the API of the hub.
var (
	KubeKeys = []string{"kubeconfig", "tls.crt", "tls.key"}
	CertKeys = []string{"tls.crt", "tls.key"}
)

// ConfigOf is the client configuration of the agent of an add-on, which mounts the Secret.
func ConfigOf(t *testing.T, secret *corev1.Secret) *rest.Config {
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

// AwaitAddOn waits until the condition of an add-on has the status and the reason, and the words in its message.
func AwaitAddOn(t *testing.T, addOn *addonv1beta1.ManagedClusterAddOn, condition string, status metav1.ConditionStatus, reason,
	words string) {
	t.Helper()
	AwaitObject(t, Hub.Client(t), addOn, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		cond := meta.FindStatusCondition(addOn.Status.Conditions, condition)
		if cond == nil || cond.Status != status || cond.Reason != reason || !strings.Contains(cond.Message, words) {
			return fmt.Errorf("want %s=%s %s %q, have %+v", condition, status, reason, words, addOn.Status.Conditions)
		}
		return nil
	})
}

// NewSigningCA is a certification authority as a Secret, and has its name.
func NewSigningCA(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(48 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}}
}

// AsAddOn is a client with the identity of an add-on on a cluster, and the right to ConfigMaps in the namespace of the cluster by a binding
// that no label tells of.
func AsAddOn(t *testing.T, admin client.Client, cluster string) (addOn client.WithWatch, right *rbacv1.RoleBinding) {
	t.Helper()
	const name = "spy"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}}}
	right = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.AddOnGroup(cluster, name)}}}
	Create(t, admin, role, right)
	subject := pkix.Name{CommonName: fleet.AddOnUser(cluster, name, "agent"), Organization: fleet.AddOnGroups(cluster, name)}
	addOn = env.ClientFor(t, WithCertificate(t, Hub, subject, nil))
	env.Eventually(t, func(ctx context.Context) error {
		return addOn.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(cluster))
	})
	return addOn, right
}
