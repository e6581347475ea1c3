package addons

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

func manageAddOns(t *testing.T, cluster string, lifetime time.Duration) *framework.AddOnManager {
	t.Helper()
	return framework.ManageAddOnsOn(t, framework.Hub, cluster, lifetime)
}

func customSigner(user string) addonv1beta1.RegistrationConfig {
	return addonv1beta1.RegistrationConfig{Type: addonv1beta1.CustomSigner, CustomSigner: &addonv1beta1.CustomSignerConfig{
		SignerName: framework.Signer, Subject: addonv1beta1.Subject{User: user, Groups: []string{"g1"}, OrganizationUnits: []string{"u1"}},
	}}
}

// RG-60 RG-61 RG-62 RG-64 RG-09: the agent gets the agents of two add-ons their access to the hub, each in its namespace, under
// the identity that the hub says, and takes it away when the registration goes.
func TestAddOnRegistration(t *testing.T) {
	t.Parallel()
	const cluster, first, second, namespace = "addonreg", "addonreg-first", "addonreg-second", "addonreg-ns"
	agent := env.Join(t, framework.Hub, framework.Managed, cluster)
	manager := manageAddOns(t, cluster, time.Hour)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	one := framework.NewAddOn(t, cluster, first, namespace, framework.KubeClient(cluster, first), customSigner("hello"))
	two := framework.NewAddOn(t, cluster, second, "", addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient})

	secret := framework.AwaitSecret(t, m, namespace, first+"-hub-kubeconfig", framework.KubeKeys, framework.AnySecret)
	who := framework.WhoIs(t, framework.ConfigOf(t, secret))
	if want := append(fleet.AddOnGroups(cluster, first), "system:authenticated"); who.Username != fleet.AddOnUser(cluster, first, "agent") ||
		!slices.Equal(slices.Sorted(slices.Values(who.Groups)), slices.Sorted(slices.Values(want))) {
		t.Errorf("the add-on is %+v", who)
	}
	checkAddOnKubeconfig(t, agent, secret)
	ns := &corev1.Namespace{}
	if err := m.Get(t.Context(), client.ObjectKey{Name: namespace}, ns); err != nil || ns.Labels[fleet.LabelAddOnAgentNamespace] != "true" {
		t.Errorf("the namespace that the agent made has labels %v: %v", ns.Labels, err)
	}
	custom := framework.AwaitSecret(t, m, namespace, first+"-example.com-hello-client-cert", framework.CertKeys, framework.AnySecret)
	leaf, err := cert.ParseCertsPEM(custom.Data["tls.crt"])
	if err != nil || leaf[0].Subject.String() != "CN=hello,OU=u1,O=g1" ||
		!slices.Equal(leaf[0].DNSNames, []string{first + ".addon.open-cluster-management.io"}) {
		t.Errorf("a certificate of %v: %v", leaf, err)
	}
	framework.AwaitAddOn(t, one, "ClusterCertificateRotated", metav1.ConditionTrue, "ClientCertificateUpdated", "valid from")
	// An identity that is not given is the default one.
	other := framework.AwaitSecret(t, m, fleet.NamespaceAgentAddOn, second+"-hub-kubeconfig", framework.KubeKeys, framework.AnySecret)
	if who := framework.WhoIs(t, framework.ConfigOf(t, other)); who.Username != fleet.AddOnUser(cluster, second, second) ||
		!slices.Contains(who.Groups, fleet.AddOnGroup(cluster, second)) {
		t.Errorf("the second add-on is %+v", who)
	}
	framework.AwaitObject(t, h, two, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if k := addOn.Status.Registrations[0].KubeClient; k == nil || k.Driver != addonv1beta1.KubeClientDriverCSR {
			return fmt.Errorf("the driver is not declared: %+v", k)
		}
		return nil
	})

	// What a user removes is there again, and a key that is spoilt is replaced, with a certificate of its own.
	if err := m.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	again := framework.AwaitSecret(t, m, namespace, secret.Name, framework.KubeKeys, framework.Fresh(secret, "tls.crt"))
	framework.MergePatch(t, m, again, `{"data":{"tls.key":null}}`)
	again = framework.AwaitSecret(t, m, namespace, secret.Name, framework.KubeKeys, framework.Fresh(again, "tls.crt"))
	framework.MergePatch(t, m, again, `{"data":{"kubeconfig":"Zm9v"},"metadata":{"labels":null}}`)
	framework.AwaitSecret(t, m, namespace, secret.Name, framework.KubeKeys, func(now *corev1.Secret) error {
		if string(now.Data["kubeconfig"]) != string(secret.Data["kubeconfig"]) || string(now.Data["tls.crt"]) != string(again.Data["tls.crt"]) ||
			now.Labels[fleet.LabelAddOnName] != first {
			return errors.New("the kubeconfig is not put back")
		}
		return nil
	})
	if n := manager.Times(first, fleet.SignerKubeAPIServerClient); n != 3 {
		t.Errorf("%d certificates were asked for, want 3", n)
	}

	// The identity changes, and then the registration goes.
	framework.ChangeAddOn(t, one, func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		status.Registrations[1].CustomSigner.Subject.User = "bye"
	})
	framework.AwaitSecret(t, m, namespace, custom.Name, framework.CertKeys, framework.Fresh(custom, "tls.crt"))
	framework.ChangeAddOn(t, one, func(status *addonv1beta1.ManagedClusterAddOnStatus) { status.Registrations = status.Registrations[:1] })
	framework.AwaitGone(t, m, custom)
	if err := h.Delete(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, again)

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
	framework.Create(t, m, foreign)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, other)
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
	env.Join(t, framework.Hub, framework.Managed, cluster)
	manager := manageAddOns(t, cluster, lifetime)
	m := framework.Managed.Client(t)
	began := time.Now()
	addOn := framework.NewAddOn(t, cluster, name, namespace, customSigner("hello"))
	secret := framework.AwaitSecret(t, m, namespace, name+"-example.com-hello-client-cert", framework.CertKeys, framework.AnySecret)
	for i := range 2 {
		before := secret
		secret = framework.AwaitSecret(t, m, namespace, secret.Name, framework.CertKeys, framework.Fresh(before, "tls.crt"))
		old, err := cert.ParseCertsPEM(before.Data["tls.crt"])
		if err != nil {
			t.Fatal(err)
		}
		// How late it is asked for depends on the machine, how early does not.
		early := old[0].NotBefore.Add(lifetime / 2)
		if asked := manager.Requests(name, framework.Signer)[i+1]; asked.Before(early) {
			t.Errorf("a new certificate was asked for at %s, before the old one had lived for half of its time, at %s", asked, early)
		}
	}
	if n, most := manager.Times(name, framework.Signer), 2+int(time.Since(began)/(lifetime/2)); n > most {
		t.Errorf("%d certificates in %s, %d would do", n, time.Since(began), most)
	}
	framework.MergePatch(t, framework.Hub.Client(t), addOn, `{"metadata":{"finalizers":["example.com/test"]}}`)
	if err := framework.Hub.Client(t).Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	framework.ChangeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) { status.Registrations = nil })
	framework.AwaitObject(t, framework.Hub.Client(t), addOn, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if meta.FindStatusCondition(addOn.Status.Conditions, "ClusterCertificateRotated") != nil {
			return errors.New("the agent has not seen that the registration is gone")
		}
		return nil
	})
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Errorf("the Secret of an add-on that is being deleted: %v", err)
	}
	framework.MergePatch(t, framework.Hub.Client(t), addOn, `{"metadata":{"finalizers":null}}`)
	framework.AwaitGone(t, m, secret)
}

// RG-07 RG-64: a request that is denied is told of, and made again when the denied one is gone. The key survives a restart of the agent.
func TestAddOnRequestIsDenied(t *testing.T) {
	t.Parallel()
	const cluster, name = "addondeny", "addondeny"
	agent := env.Join(t, framework.Hub, framework.Managed, cluster)
	h := framework.Hub.Client(t)
	addOn := framework.NewAddOn(t, cluster, name, name, framework.KubeClient(cluster, name))
	waiting := addOnRequests(t, cluster, name, 1)[0]
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitLog(t, agent.Process, "Request for a certificate taken up again", 1)
	waiting.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
		Status: corev1.ConditionTrue, Reason: "Test", Message: "no add-ons here"}}
	if err := h.SubResource("approval").Update(t.Context(), &waiting); err != nil {
		t.Fatal(err)
	}
	framework.AwaitAddOn(t, addOn, "ClusterCertificateRotated", metav1.ConditionFalse, "ClientCertificateUpdateFailed", "no add-ons here")
	if err := h.Delete(t.Context(), &waiting); err != nil {
		t.Fatal(err)
	}
	manageAddOns(t, cluster, time.Hour)
	framework.AwaitSecret(t, framework.Managed.Client(t), name, name+"-hub-kubeconfig", framework.KubeKeys, framework.AnySecret)
	framework.AwaitAddOn(t, addOn, "ClusterCertificateRotated", metav1.ConditionTrue, "ClientCertificateUpdated", "")
	addOnRequests(t, cluster, name, 1)
}

func addOnRequests(t *testing.T, cluster, addOn string, n int) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := framework.Hub.Client(t).List(ctx, list, client.MatchingLabels{fleet.LabelClusterName: cluster,
			fleet.LabelAddOnName: addOn}); err != nil {
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
	env.Join(t, framework.Hub, framework.Managed, cluster, "--kubeconfig", framework.Hub.Kubeconfig)
	manageAddOns(t, cluster, time.Hour)
	hosting := framework.Hub.Client(t)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster, Name: name, Annotations: map[string]string{fleet.AnnotationHostingClusterName: "local",
			fleet.AnnotationInstallNamespace: name},
	}}
	framework.Create(t, hosting, addOn)
	framework.ChangeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		status.Registrations = []addonv1beta1.RegistrationConfig{framework.KubeClient(cluster, name)}
		meta.SetStatusCondition(&status.Conditions, hostingClusterIsValid)
	})
	secret := framework.AwaitSecret(t, hosting, name, name+"-hub-kubeconfig", framework.KubeKeys, framework.AnySecret)
	if err := framework.Managed.Client(t).Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the managed cluster has it, too: %v", err)
	}
	if err := hosting.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, hosting, secret)
}

// RG-09 RG-10: the way to the hub changes for add-ons as it does for the agent: by another proxy, with another CA. Their certificates
// stay.
func TestAddOnsGoTheAgentsWay(t *testing.T) {
	t.Parallel()
	const cluster, name = "addonway", "addonway"
	agent := env.Join(t, framework.Hub, framework.Managed, cluster)
	manager := manageAddOns(t, cluster, time.Hour)
	framework.NewAddOn(t, cluster, name, name, framework.KubeClient(cluster, name))
	before := framework.AwaitSecret(t, framework.Managed.Client(t), name, name+"-hub-kubeconfig", framework.KubeKeys, framework.AnySecret)
	proxy := framework.StartProxy(t, true, nil)
	framework.WithCA(t, agent, framework.AnotherCA(t))
	framework.AwaitSecret(t, framework.Managed.Client(t), name, before.Name, framework.KubeKeys, trusting(string(framework.AnotherCA(t)), ""))
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	framework.BehindProxy(t, agent, proxy.URL, proxy.CA())
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	now := framework.AwaitSecret(t, framework.Managed.Client(t), name, before.Name, framework.KubeKeys,
		trusting(string(proxy.CA()), proxy.URL))
	if string(now.Data["tls.crt"]) != string(before.Data["tls.crt"]) || manager.Times(name, fleet.SignerKubeAPIServerClient) != 1 {
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
