package template_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/addon/template"
)

func signer(name string, subject *addonv1beta1.TemplateSubject) addonv1beta1.RegistrationSpec {
	return addonv1beta1.RegistrationSpec{Type: addonv1beta1.RegistrationTypeCustomSigner,
		CustomSigner: &addonv1beta1.CustomSignerRegistrationSpec{
			SignerName: name, Subject: subject, SigningCA: addonv1beta1.SigningCARef{Namespace: "ns", Name: "ca"},
		}}
}

// AM-34, AM-35
func TestRegistrations(t *testing.T) {
	t.Parallel()
	kubeClient := addonv1beta1.RegistrationSpec{Type: addonv1beta1.RegistrationTypeKubeClient}
	const user = "system:open-cluster-management:cluster:c1:addon:hello:agent:hello-agent"
	groups := []string{"system:open-cluster-management:cluster:c1:addon:hello", "system:open-cluster-management:addon:hello"}
	wantKubeClient := addonv1beta1.RegistrationConfig{Type: "kubeClient",
		KubeClient: &addonv1beta1.KubeClientConfig{Subject: addonv1beta1.KubeClientSubject{User: user, Groups: groups}}}
	for _, test := range []struct {
		name         string
		registration []addonv1beta1.RegistrationSpec
		want         []addonv1beta1.RegistrationConfig
	}{
		{name: "none"},
		{name: "hub, once", registration: []addonv1beta1.RegistrationSpec{kubeClient, kubeClient},
			want: []addonv1beta1.RegistrationConfig{wantKubeClient}},
		{name: "signers", registration: []addonv1beta1.RegistrationSpec{signer("example.com/hello", nil), kubeClient,
			signer("example.com/other", &addonv1beta1.TemplateSubject{User: "u", Groups: []string{"g"}, OrganizationUnits: []string{"o"}})},
			want: []addonv1beta1.RegistrationConfig{wantKubeClient,
				{Type: "customSigner", CustomSigner: &addonv1beta1.CustomSignerConfig{SignerName: "example.com/hello",
					Subject: addonv1beta1.Subject{User: user, Groups: groups}}},
				{Type: "customSigner", CustomSigner: &addonv1beta1.CustomSignerConfig{SignerName: "example.com/other",
					Subject: addonv1beta1.Subject{User: "u", Groups: []string{"g"}, OrganizationUnits: []string{"o"}}}},
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := template.Registrations(&addonv1beta1.AddOnTemplateSpec{Registration: test.registration}, "hello", "c1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Gap A2: the signers of Kubernetes and of the hub are nobody's, and a signer that is not declared has no CA.
func TestSignersOfOthers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving", "x.kubernetes.io/y", "x.k8s.io/y",
		"open-cluster-management.io/grpc"} {
		spec := &addonv1beta1.AddOnTemplateSpec{Registration: []addonv1beta1.RegistrationSpec{signer(name, nil)}}
		if _, err := template.Registrations(spec, "hello", "c1"); err == nil ||
			!strings.Contains(err.Error(), "spec.registration[0].customSigner.signerName") {
			t.Errorf("an agent registers for %s, error %v", name, err)
		}
		if ca, ok := template.SigningCA(spec, name); ok {
			t.Errorf("%s is signed with %v", name, ca)
		}
	}
	spec := &addonv1beta1.AddOnTemplateSpec{Registration: []addonv1beta1.RegistrationSpec{signer("example.com/hello", nil)}}
	if ca, ok := template.SigningCA(spec, "example.com/hello"); !ok || ca.Name != "ca" || ca.Namespace != "ns" {
		t.Errorf("the CA is %v, found %t", ca, ok)
	}
	if ca, ok := template.SigningCA(spec, "example.com/other"); ok {
		t.Errorf("a signer that is not declared has the CA %v", ca)
	}
	missing := &addonv1beta1.AddOnTemplateSpec{
		Registration: []addonv1beta1.RegistrationSpec{{Type: addonv1beta1.RegistrationTypeCustomSigner}}}
	if _, err := template.Registrations(missing, "hello", "c1"); err == nil ||
		!strings.Contains(err.Error(), "spec.registration[0].customSigner is missing") {
		t.Errorf("a custom signer without a name: %v", err)
	}
}
