package addons

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-53 AM-40 RG-62 KL-19: with the driver token an add-on gets tokens of a service account of its own, which the hub makes, revokes and
// removes.
func TestAddOnTokens(t *testing.T) {
	t.Parallel()
	const cluster, name = "addontoken", "addontoken"
	env.Join(t, framework.Hub, framework.Managed, cluster, "--addon-kubeclient-registration-auth", "token", "--addon-token-expiration-seconds", "1200")
	manager := manageAddOns(t, cluster, time.Hour)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	addOn := framework.NewAddOn(t, cluster, name, name, framework.KubeClient(cluster, name), customSigner("hello"))
	secret := framework.AwaitSecret(t, m, name, name+"-hub-kubeconfig", []string{"kubeconfig", "token"}, framework.AnySecret)
	framework.AwaitSecret(t, m, name, name+"-example.com-hello-client-cert", framework.CertKeys, framework.AnySecret)
	user := "system:serviceaccount:" + cluster + ":" + name + "-agent"
	config := framework.ConfigOf(t, secret)
	if who := framework.WhoIs(t, config); who.Username != user {
		t.Errorf("the add-on is %+v", who)
	}
	framework.AwaitAddOn(t, addOn, "TokenRefreshed", metav1.ConditionTrue, "AddonTokenRefreshed", "valid from")
	framework.AwaitObject(t, h, addOn, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if k := addOn.Status.Registrations[0].KubeClient; k.Driver != addonv1beta1.KubeClientDriverToken || k.Subject.User != user ||
			len(k.Subject.Groups) > 0 {
			return fmt.Errorf("registered as %+v", k)
		}
		return nil
	})
	if n := manager.Times(name, fleet.SignerKubeAPIServerClient); n != 0 {
		t.Errorf("%d certificates were asked for, too", n)
	}

	// Without its service account the token is worth nothing. There is a new one, of which the add-on gets a token.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-agent"}}
	if err := h.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	again := framework.AwaitSecret(t, m, name, secret.Name, []string{"kubeconfig", "token"}, framework.Fresh(secret, "token"))
	if who := framework.WhoIs(t, framework.ConfigOf(t, again)); who.Username != user {
		t.Errorf("the add-on is %+v", who)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := env.ClientFor(t, config).Create(ctx, &authenticationv1.SelfSubjectReview{}); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token of a service account that is gone: %w", err)
		}
		return nil
	})

	// It goes with the registration.
	framework.ChangeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) { status.Registrations = status.Registrations[1:] })
	framework.AwaitGone(t, m, again)
	framework.AwaitGone(t, h, account)
	framework.AwaitGone(t, h, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-token-role"}})
	framework.AwaitGone(t, h, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-token-role"}})
}

// AM-40: an agent gets no tokens of a service account that another user made, whatever its name.
func TestAddOnTokensOfAnother(t *testing.T) {
	t.Parallel()
	const cluster, name = "addontokenother", "addontokenother"
	framework.AcceptAll(t, cluster)
	h := framework.Hub.Client(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-agent"}}
	framework.Create(t, h, account)
	registration := framework.KubeClient(cluster, name)
	registration.KubeClient.Driver = addonv1beta1.KubeClientDriverToken
	addOn := framework.NewAddOn(t, cluster, name, name, registration)
	framework.AwaitAddOn(t, addOn, "TokenInfrastructureReady", metav1.ConditionFalse, "TokenInfrastructureApplyFailed",
		"delete it, or give it the labels")
	err := framework.AsAgent(t, framework.Hub, cluster).SubResource("token").Create(t.Context(), account, &authenticationv1.TokenRequest{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the agent asks for a token: %v", err)
	}
	// Of one that was made for the add-on it does, and of no other.
	if err := h.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	framework.AwaitAddOn(t, addOn, "TokenInfrastructureReady", metav1.ConditionTrue, "TokenInfrastructureReady", "UID: ")
	env.Eventually(t, func(ctx context.Context) error {
		return framework.AsAgent(t, framework.Hub, cluster).SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
	})
	framework.Create(t, h, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "more"}})
	err = framework.AsAgent(t, framework.Hub, cluster).SubResource("token").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "more"}}, &authenticationv1.TokenRequest{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the agent asks for a token of another service account: %v", err)
	}
	// What loses its label is another user's from then on.
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-token-role"}}
	if err := h.Patch(t.Context(), role, framework.Merge(`{"metadata":{"labels":{"`+fleet.LabelTokenInfrastructure+`":null}}}`)); err != nil {
		t.Fatal(err)
	}
	framework.AwaitAddOn(t, addOn, "TokenInfrastructureReady", metav1.ConditionFalse, "TokenInfrastructureApplyFailed",
		"delete it, or give it the labels")
}

// R10: an agent tells how an add-on is. As whom the add-on acts, and for which cluster, it does not.
func TestAgentsDoNotNameAddOnsOtherwise(t *testing.T) {
	t.Parallel()
	const own, other, name = "addonforge", "addonforge-other", "addonforge"
	framework.AcceptAll(t, own, other)
	addOn := framework.NewAddOn(t, own, name, name, framework.KubeClient(own, name))
	foreign := framework.NewAddOn(t, other, name, name, framework.KubeClient(other, name))
	agent := framework.AsAgent(t, framework.Hub, own)
	status := func(patch string) error {
		return agent.Status().Patch(t.Context(), addOn.DeepCopy(), framework.Merge(patch))
	}
	if err := status(`{"status":{"conditions":[{"type":"Available","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`); err != nil {
		t.Errorf("tell a condition: %v", err)
	}
	escalated := `{"status":{"registrations":[{"type":"kubeClient","kubeClient":{"subject":{"user":"` + fleet.AddOnUser(other, name, "agent") +
		`","groups":["` + fleet.AddOnGroup(other, name) + `"]}}}]}}`
	framework.ExpectRefusal(t, status(escalated), apierrors.IsForbidden, "cannot change status.registrations")
	old := &unstructured.Unstructured{}
	old.SetAPIVersion("addon.open-cluster-management.io/v1alpha1")
	old.SetKind("ManagedClusterAddOn")
	old.SetNamespace(own)
	old.SetName(name)
	err := agent.Status().Patch(t.Context(), old.DeepCopy(),
		framework.Merge(`{"status":{"registrations":[{"signerName":"kubernetes.io/kube-apiserver-client","subject":{"user":"x"}}]}}`))
	framework.ExpectRefusal(t, err, apierrors.IsForbidden, "cannot change status.registrations")
	if err := agent.Status().Patch(t.Context(), old.DeepCopy(), framework.Merge(`{"status":{"kubeClientDriver":"token"}}`)); err != nil {
		t.Errorf("tell the driver: %v", err)
	}
	if err := agent.Status().Patch(t.Context(), foreign.DeepCopy(),
		framework.Merge(`{"status":{"conditions":[]}}`)); !apierrors.IsForbidden(err) {
		t.Errorf("tell of an add-on of another cluster: %v", err)
	}
	err = agent.Patch(t.Context(), addOn.DeepCopy(), framework.Merge(`{"metadata":{"annotations":{"a":"b"}}}`))
	if !apierrors.IsForbidden(err) {
		t.Errorf("change an add-on: %v", err)
	}
	labels := map[string]string{fleet.LabelClusterName: other, fleet.LabelAddOnName: name}
	csr, _ := framework.NewRequest(t, pkix.Name{CommonName: fleet.AddOnUser(other, name, "agent"),
		Organization: []string{fleet.AddOnGroup(other, name)}}, labels)
	framework.ExpectRefusal(t, agent.Create(t.Context(), csr), apierrors.IsForbidden, fleet.LabelClusterName)
	csr.Labels[fleet.LabelClusterName] = own
	if err := agent.Create(t.Context(), csr); err != nil {
		t.Errorf("ask for a certificate, which nobody approves: %v", err)
	}
	// An add-on's agent is none of its cluster's.
	subject := pkix.Name{CommonName: fleet.AddOnUser(own, name, "agent"), Organization: fleet.AddOnGroups(own, name)}
	addOnAgent := env.ClientFor(t, framework.WithCertificate(t, framework.Hub, subject, framework.OfCluster(own)))
	for what, err := range map[string]error{
		"list requests":  addOnAgent.List(t.Context(), &certificatesv1.CertificateSigningRequestList{}),
		"list add-ons":   addOnAgent.List(t.Context(), &addonv1beta1.ManagedClusterAddOnList{}, client.InNamespace(own)),
		"tell how it is": addOnAgent.Status().Patch(t.Context(), addOn.DeepCopy(), framework.Merge(`{"status":{"conditions":[]}}`)),
		"ask for a certificate": addOnAgent.Create(t.Context(),
			&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Labels: labels}, Spec: csr.Spec}),
		"see its managed cluster": addOnAgent.Get(t.Context(), client.ObjectKey{Name: own}, &clusterv1.ManagedCluster{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("an add-on's agent may %s: %v", what, err)
		}
	}
}
