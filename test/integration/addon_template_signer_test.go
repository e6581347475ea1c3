package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// AM-35, A2: the agent of a template gets a certificate of the template's own CA, as soon as there is one. Then the template is deleted
// before the add-on, which holds up nothing.
func TestAddOnTemplateSigner(t *testing.T) {
	t.Parallel()
	const name, signer = "template-signer", "example.com/template"
	c, onCluster := hub.Client(t), managed.Client(t)
	namespace(t, c, fleet.NamespaceHub)
	template := &addonv1beta1.AddOnTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: addonv1beta1.AddOnTemplateSpec{
			AddonName: name,
			Registration: []addonv1beta1.RegistrationSpec{{Type: addonv1beta1.RegistrationTypeCustomSigner,
				CustomSigner: &addonv1beta1.CustomSignerRegistrationSpec{
					SignerName: signer, Subject: &addonv1beta1.TemplateSubject{User: "hello", Groups: []string{"hellos"}},
					SigningCA: addonv1beta1.SigningCARef{Name: name + "-ca"},
				}}},
		},
	}
	template.Spec.AgentSpec.Workload.Manifests = raw(configMap(name, name, "{{CLIENT_CERT_EXAMPLE_COM_TEMPLATE}}"))
	create(t, c, template, &addonv1beta1.ClusterManagementAddOn{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: addonv1beta1.ClusterManagementAddOnSpec{DefaultConfigs: []addonv1beta1.AddOnConfig{{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: "addontemplates"},
			ConfigReferent:      addonv1beta1.ConfigReferent{Name: name},
		}}},
	})
	namespace(t, onCluster, name)
	namespace(t, onCluster, fleet.NamespaceAgentAddOn)
	env.Join(t, hub, managed, name)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	create(t, c, addOn)
	awaitAddOnEvent(t, addOn, "AddOnCertificateNotSigned", "read the signingCA, Secret "+fleet.NamespaceHub+"/"+name+"-ca")
	create(t, c, newSigningCA(t, fleet.NamespaceHub, name+"-ca"))

	env.Eventually(t, func(ctx context.Context) error {
		secret := &corev1.Secret{}
		if err := onCluster.Get(ctx, client.ObjectKey{Namespace: fleet.NamespaceAgentAddOn, Name: name + "-example.com-template-client-cert"},
			secret); err != nil {
			return err
		}
		block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
		if block == nil {
			return fmt.Errorf("no certificate among %d keys", len(secret.Data))
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		if certificate.Issuer.CommonName != name+"-ca" || certificate.Subject.String() != "CN=hello,O=hellos" {
			return fmt.Errorf("issued by %s for %s", certificate.Issuer, certificate.Subject)
		}
		return nil
	})
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionManifestApplied) {
			return fmt.Errorf("not applied: %+v", addOn.Status)
		}
		return onCluster.Get(ctx, client.ObjectKey{Namespace: name, Name: name}, &corev1.ConfigMap{})
	})

	for _, o := range []client.Object{template, addOn} {
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	awaitGone(t, c, addOn)
	awaitGone(t, onCluster, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})
	awaitGone(t, onCluster, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAgentAddOn, Name: name +
		"-example.com-template-client-cert"}})
}

// newSigningCA is a certification authority as a Secret, and has its name.
func newSigningCA(t *testing.T, namespace, name string) *corev1.Secret {
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
