package integration

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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// RG-53 AM-40 RG-62 KL-19: with the driver token an add-on gets tokens of a service account of its own, which the hub makes, revokes and
// removes.
func TestAddOnTokens(t *testing.T) {
	t.Parallel()
	const cluster, name = "addontoken", "addontoken"
	env.Join(t, hub, managed, cluster, "--addon-kubeclient-registration-auth", "token", "--addon-token-expiration-seconds", "1200")
	manager := manageAddOns(t, cluster, time.Hour)
	h, m := hub.Client(t), managed.Client(t)
	addOn := newAddOn(t, cluster, name, name, kubeClient(cluster, name), customSigner("hello"))
	secret := awaitSecret(t, m, name, name+"-hub-kubeconfig", []string{"kubeconfig", "token"}, anySecret)
	awaitSecret(t, m, name, name+"-example.com-hello-client-cert", certKeys, anySecret)
	user := "system:serviceaccount:" + cluster + ":" + name + "-agent"
	config := configOf(t, secret)
	if who := whoIs(t, config); who.Username != user {
		t.Errorf("the add-on is %+v", who)
	}
	awaitAddOn(t, addOn, "TokenRefreshed", metav1.ConditionTrue, "AddonTokenRefreshed", "valid from")
	awaitObject(t, h, addOn, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if k := addOn.Status.Registrations[0].KubeClient; k.Driver != addonv1beta1.KubeClientDriverToken || k.Subject.User != user ||
			len(k.Subject.Groups) > 0 {
			return fmt.Errorf("registered as %+v", k)
		}
		return nil
	})
	if n := manager.times(name, fleet.SignerKubeAPIServerClient); n != 0 {
		t.Errorf("%d certificates were asked for, too", n)
	}

	// Without its service account the token is worth nothing. There is a new one, of which the add-on gets a token.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-agent"}}
	if err := h.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	again := awaitSecret(t, m, name, secret.Name, []string{"kubeconfig", "token"}, fresh(secret, "token"))
	if who := whoIs(t, configOf(t, again)); who.Username != user {
		t.Errorf("the add-on is %+v", who)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := env.ClientFor(t, config).Create(ctx, &authenticationv1.SelfSubjectReview{}); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token of a service account that is gone: %w", err)
		}
		return nil
	})

	// It goes with the registration.
	changeAddOn(t, addOn, func(status *addonv1beta1.ManagedClusterAddOnStatus) { status.Registrations = status.Registrations[1:] })
	awaitGone(t, m, again)
	awaitGone(t, h, account)
	awaitGone(t, h, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-token-role"}})
	awaitGone(t, h, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-token-role"}})
}

// AM-40: an agent gets no tokens of a service account that another user made, whatever its name.
func TestAddOnTokensOfAnother(t *testing.T) {
	t.Parallel()
	const cluster, name = "addontokenother", "addontokenother"
	acceptAll(t, cluster)
	h := hub.Client(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-agent"}}
	create(t, h, account)
	registration := kubeClient(cluster, name)
	registration.KubeClient.Driver = addonv1beta1.KubeClientDriverToken
	addOn := newAddOn(t, cluster, name, name, registration)
	awaitAddOn(t, addOn, "TokenInfrastructureReady", metav1.ConditionFalse, "TokenInfrastructureApplyFailed",
		"delete it, or give it the labels")
	err := asAgent(t, hub, cluster).SubResource("token").Create(t.Context(), account, &authenticationv1.TokenRequest{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the agent asks for a token: %v", err)
	}
	// Of one that was made for the add-on it does, and of no other.
	if err := h.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	awaitAddOn(t, addOn, "TokenInfrastructureReady", metav1.ConditionTrue, "TokenInfrastructureReady", "UID: ")
	env.Eventually(t, func(ctx context.Context) error {
		return asAgent(t, hub, cluster).SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
	})
	create(t, h, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "more"}})
	err = asAgent(t, hub, cluster).SubResource("token").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "more"}}, &authenticationv1.TokenRequest{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the agent asks for a token of another service account: %v", err)
	}
	// What loses its label is another user's from then on.
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + "-token-role"}}
	if err := h.Patch(t.Context(), role, merge(`{"metadata":{"labels":{"`+fleet.LabelTokenInfrastructure+`":null}}}`)); err != nil {
		t.Fatal(err)
	}
	awaitAddOn(t, addOn, "TokenInfrastructureReady", metav1.ConditionFalse, "TokenInfrastructureApplyFailed",
		"delete it, or give it the labels")
}

// R10: an agent tells how an add-on is. As whom the add-on acts, and for which cluster, it does not.
func TestAgentsDoNotNameAddOnsOtherwise(t *testing.T) {
	t.Parallel()
	const own, other, name = "addonforge", "addonforge-other", "addonforge"
	acceptAll(t, own, other)
	addOn := newAddOn(t, own, name, name, kubeClient(own, name))
	foreign := newAddOn(t, other, name, name, kubeClient(other, name))
	agent := asAgent(t, hub, own)
	status := func(patch string) error {
		return agent.Status().Patch(t.Context(), addOn.DeepCopy(), merge(patch))
	}
	if err := status(`{"status":{"conditions":[{"type":"Available","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`); err != nil {
		t.Errorf("tell a condition: %v", err)
	}
	escalated := `{"status":{"registrations":[{"type":"kubeClient","kubeClient":{"subject":{"user":"` + fleet.AddOnUser(other, name, "agent") +
		`","groups":["` + fleet.AddOnGroup(other, name) + `"]}}}]}}`
	expectRefusal(t, status(escalated), apierrors.IsForbidden, "cannot change status.registrations")
	old := &unstructured.Unstructured{}
	old.SetAPIVersion("addon.open-cluster-management.io/v1alpha1")
	old.SetKind("ManagedClusterAddOn")
	old.SetNamespace(own)
	old.SetName(name)
	err := agent.Status().Patch(t.Context(), old.DeepCopy(),
		merge(`{"status":{"registrations":[{"signerName":"kubernetes.io/kube-apiserver-client","subject":{"user":"x"}}]}}`))
	expectRefusal(t, err, apierrors.IsForbidden, "cannot change status.registrations")
	if err := agent.Status().Patch(t.Context(), old.DeepCopy(), merge(`{"status":{"kubeClientDriver":"token"}}`)); err != nil {
		t.Errorf("tell the driver: %v", err)
	}
	if err := agent.Status().Patch(t.Context(), foreign.DeepCopy(), merge(`{"status":{"conditions":[]}}`)); !apierrors.IsForbidden(err) {
		t.Errorf("tell of an add-on of another cluster: %v", err)
	}
	if err := agent.Patch(t.Context(), addOn.DeepCopy(), merge(`{"metadata":{"annotations":{"a":"b"}}}`)); !apierrors.IsForbidden(err) {
		t.Errorf("change an add-on: %v", err)
	}
	labels := map[string]string{fleet.LabelClusterName: other, fleet.LabelAddOnName: name}
	csr, _ := newRequest(t, pkix.Name{CommonName: fleet.AddOnUser(other, name, "agent"),
		Organization: []string{fleet.AddOnGroup(other, name)}}, labels)
	expectRefusal(t, agent.Create(t.Context(), csr), apierrors.IsForbidden, fleet.LabelClusterName)
	csr.Labels[fleet.LabelClusterName] = own
	if err := agent.Create(t.Context(), csr); err != nil {
		t.Errorf("ask for a certificate, which nobody approves: %v", err)
	}
	// An add-on's agent is none of its cluster's.
	subject := pkix.Name{CommonName: fleet.AddOnUser(own, name, "agent"), Organization: fleet.AddOnGroups(own, name)}
	addOnAgent := env.ClientFor(t, withCertificate(t, hub, subject, ofCluster(own)))
	for what, err := range map[string]error{
		"list requests":  addOnAgent.List(t.Context(), &certificatesv1.CertificateSigningRequestList{}),
		"list add-ons":   addOnAgent.List(t.Context(), &addonv1beta1.ManagedClusterAddOnList{}, client.InNamespace(own)),
		"tell how it is": addOnAgent.Status().Patch(t.Context(), addOn.DeepCopy(), merge(`{"status":{"conditions":[]}}`)),
		"ask for a certificate": addOnAgent.Create(t.Context(),
			&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Labels: labels}, Spec: csr.Spec}),
		"see its managed cluster": addOnAgent.Get(t.Context(), client.ObjectKey{Name: own}, &clusterv1.ManagedCluster{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("an add-on's agent may %s: %v", what, err)
		}
	}
}

// testAddOnStatusExisting is R10 on a hub in an existing cluster: what TestAgentsDoNotNameAddOnsOtherwise says of a standalone one.
func testAddOnStatusExisting(t *testing.T, existing *env.Server) {
	const cluster, name = "addonforge-existing", "addonforge"
	admin := existing.Client(t)
	create(t, admin, acceptedCluster(cluster))
	awaitHubAccepted(t, admin, cluster, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	create(t, admin, addOn)
	config, err := existing.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: fleet.ClusterUser(cluster, "agent1"),
		Groups: append(fleet.ClusterGroups(cluster), fleet.GroupAuthenticated)}
	agent := env.ClientFor(t, config)
	env.Eventually(t, func(ctx context.Context) error {
		return agent.Status().Patch(ctx, addOn.DeepCopy(),
			merge(`{"status":{"conditions":[{"type":"A","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`))
	})
	registrations := `{"status":{"registrations":[{"type":"kubeClient","kubeClient":{"driver":"csr","subject":{"user":"x"}}}]}}`
	err = agent.Status().Patch(t.Context(), addOn.DeepCopy(), merge(registrations))
	expectRefusal(t, err, apierrors.IsForbidden, "cannot change status.registrations")
	if err := admin.Status().Patch(t.Context(), addOn.DeepCopy(), merge(registrations)); err != nil {
		t.Errorf("the manager of the add-on: %v", err)
	}
}
