package addons

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// AM-35, A2: the agent of a template gets a certificate of the template's own CA, as soon as there is one. Then the template is deleted
// before the add-on, which holds up nothing.
func TestAddOnTemplateSigner(t *testing.T) {
	t.Parallel()
	const name, signer = "template-signer", "example.com/template"
	c, onCluster := framework.Hub.Client(t), framework.Managed.Client(t)
	framework.Namespace(t, c, fleet.NamespaceHub)
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
	template.Spec.AgentSpec.Workload.Manifests = framework.RawManifests(framework.ConfigMap(name, name,
		"{{CLIENT_CERT_EXAMPLE_COM_TEMPLATE}}"))
	framework.Create(t, c, template, &addonv1beta1.ClusterManagementAddOn{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: addonv1beta1.ClusterManagementAddOnSpec{DefaultConfigs: []addonv1beta1.AddOnConfig{{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: "addontemplates"},
			ConfigReferent:      addonv1beta1.ConfigReferent{Name: name},
		}}},
	})
	framework.Namespace(t, onCluster, name)
	framework.Namespace(t, onCluster, fleet.NamespaceAgentAddOn)
	env.Join(t, framework.Hub, framework.Managed, name)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	framework.Create(t, c, addOn)
	awaitAddOnEvent(t, addOn, "AddOnCertificateNotSigned", "read the signingCA, Secret "+fleet.NamespaceHub+"/"+name+"-ca")
	framework.Create(t, c, framework.NewSigningCA(t, fleet.NamespaceHub, name+"-ca"))

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
	framework.AwaitGone(t, c, addOn)
	framework.AwaitGone(t, onCluster, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})
	framework.AwaitGone(t, onCluster, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAgentAddOn, Name: name +
		"-example.com-template-client-cert"}})
}
