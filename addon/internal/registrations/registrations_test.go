package registrations_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/internal/registrations"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

func installation() addon.Installation {
	i := addon.Installation{Cluster: &clusterv1.ManagedCluster{}, AddOn: &addonv1beta1.ManagedClusterAddOn{}}
	i.Cluster.Name, i.AddOn.Namespace, i.AddOn.Name = "c1", "c1", "hello"
	return i
}

func kube(user string, groups ...string) addonv1beta1.RegistrationConfig {
	return addonv1beta1.RegistrationConfig{Type: "kubeClient", KubeClient: &addonv1beta1.KubeClientConfig{
		Subject: addonv1beta1.KubeClientSubject{User: user, Groups: groups}}}
}

func custom(signer, user string, groups ...string) addonv1beta1.RegistrationConfig {
	return addonv1beta1.RegistrationConfig{Type: "customSigner", CustomSigner: &addonv1beta1.CustomSignerConfig{
		SignerName: signer, Subject: addonv1beta1.Subject{User: user, Groups: groups}}}
}

func of(configs ...addonv1beta1.RegistrationConfig) ([]addonv1beta1.RegistrationConfig, error) {
	return registrations.Of(context.Background(), &addon.Registration{
		Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
			return configs, nil
		},
	}, installation())
}

// RG-61 AF-04
func TestDefaults(t *testing.T) {
	t.Parallel()
	user := "system:open-cluster-management:cluster:c1:addon:hello:agent:hello"
	groups := []string{"system:open-cluster-management:cluster:c1:addon:hello", "system:open-cluster-management:addon:hello"}
	got, err := of(addonv1beta1.RegistrationConfig{Type: "kubeClient"}, custom("example.com/hello", ""))
	want := []addonv1beta1.RegistrationConfig{kube(user, groups...), custom("example.com/hello", user, groups...)}
	if err != nil || !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := of(custom("example.com/hello", "ann")); err != nil || len(got[0].CustomSigner.Subject.Groups) > 0 {
		t.Errorf("a name without groups: %+v, %v", got, err)
	}
	if got, err := registrations.Of(t.Context(), nil, installation()); got != nil || err != nil {
		t.Errorf("without registration: %v, %v", got, err)
	}
}

// A2: an add-on gets no identity but its own.
func TestForeignIdentities(t *testing.T) {
	t.Parallel()
	for what, config := range map[string]addonv1beta1.RegistrationConfig{
		"administrators":                kube("", "system:masters"),
		"agent of the cluster":          kube("system:open-cluster-management:c1:agent1"),
		"agents of another cluster":     kube("", "system:open-cluster-management:c2"),
		"agents of all clusters":        kube("", "system:open-cluster-management:managed-clusters"),
		"agent through AWS":             kube("", "open-cluster-management:c2"),
		"same add-on, another cluster":  kube("", "system:open-cluster-management:cluster:c2:addon:hello"),
		"another add-on":                kube("system:open-cluster-management:cluster:c1:addon:other:agent:a"),
		"add-on of a longer name":       kube("", "system:open-cluster-management:cluster:c1:addon:hello2"),
		"service account":               kube("system:serviceaccount:kube-system:default"),
		"service accounts":              kube("", "system:serviceaccounts"),
		"signer of Kubernetes":          custom("kubernetes.io/kube-apiserver-client", ""),
		"signer of kubelets":            custom("kubernetes.io/kubelet-serving", ""),
		"signer of a part of it":        custom("metrics.k8s.io/serving", ""),
		"signer without a name":         custom("", ""),
		"signer of the gRPC server":     custom("open-cluster-management.io/grpc", ""),
		"custom signer, foreign user":   custom("example.com/hello", "system:open-cluster-management:c2:agent1"),
		"type that does not exist":      {Type: "other"},
		"custom signer without signer":  {Type: "customSigner"},
		"custom signer, foreign groups": custom("example.com/hello", "", "system:masters"),
	} {
		if got, err := of(config); err == nil {
			t.Errorf("%s: got %+v", what, got)
		}
	}
	for what, config := range map[string]addonv1beta1.RegistrationConfig{
		"names of its own":      kube("hello", "hello-agents"),
		"authenticated":         kube("", "system:authenticated"),
		"group below its group": kube("", "system:open-cluster-management:addon:hello:readers"),
		"signer of its own":     custom("example.com/hello", "hello"),
	} {
		if _, err := of(config); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := of(kube(""), kube("hello")); err == nil || !strings.Contains(err.Error(), "once") {
		t.Errorf("two for the same signer: %v", err)
	}
}

// RG-53 RG-62: how the agent gets its credential is its to say, and as whom it acts then is not.
func TestDrive(t *testing.T) {
	t.Parallel()
	csr, token := kube("eve", "system:masters"), kube("eve", "system:masters", "system:serviceaccounts", "system:serviceaccounts:c1",
		"system:serviceaccounts:c2")
	csr.KubeClient.Driver, token.KubeClient.Driver = "csr", "token"
	byCSR, byToken := kube("hello", "hellos"), kube("system:serviceaccount:c1:hello-agent", "system:serviceaccounts",
		"system:serviceaccounts:c1")
	byCSR.KubeClient.Driver, byToken.KubeClient.Driver = "csr", "token"
	for name, test := range map[string]struct {
		declared []addonv1beta1.RegistrationConfig
		want     addonv1beta1.RegistrationConfig
	}{
		"nothing":     {nil, kube("hello", "hellos")},
		"certificate": {[]addonv1beta1.RegistrationConfig{custom("example.com/hello", "ann"), csr}, byCSR},
		"token":       {[]addonv1beta1.RegistrationConfig{token}, byToken},
	} {
		config, addOn := kube("hello", "hellos"), installation().AddOn
		addOn.Status.Registrations = test.declared
		registrations.Drive(&config, addOn)
		if !equality.Semantic.DeepEqual(config, test.want) {
			t.Errorf("%s: %+v, want %+v", name, config.KubeClient, test.want.KubeClient)
		}
	}
}

func TestErrorOfTheAddOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	_, err := registrations.Of(t.Context(), &addon.Registration{
		Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
			return nil, broken
		},
	}, installation())
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
