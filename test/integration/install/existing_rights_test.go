package install

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// impersonate is a client of a user in a cluster.
func impersonate(t *testing.T, server *env.Server, user string, groups ...string) client.Client {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, fleet.GroupAuthenticated)}
	return env.ClientFor(t, config)
}

// asHubAccount is a client with the stolen token of a controller of the hub.
func asHubAccount(t *testing.T, server *env.Server, account string) client.Client {
	t.Helper()
	return impersonate(t, server, fleet.ServiceAccountUser(fleet.NamespaceHub, account), "system:serviceaccounts", "system:serviceaccounts:"+
		fleet.NamespaceHub)
}

// "tokens of all service accounts, approval of all client CSRs". Whoever has the token of a controller of the hub gets no further in the
// cluster that the hub is in. Some of what is tried the policies of deploy/hub/policies.yaml refuse, some RBAC.
func testStolenTokens(t *testing.T, existing *env.Server) {
	const name = "stolen"
	admin := existing.Client(t)
	framework.Create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: framework.OfCluster(name)}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-token-role"}},
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}},
		framework.Work(name, name, framework.ConfigMap("default", "a", "b")), framework.ReplicaSet(name, name, framework.ConfigMap("default", "a", "b"), "p"),
		&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})
	registration, addOns := asHubAccount(t, existing, fleet.ServiceAccountRegistrationController),
		asHubAccount(t, existing, fleet.ServiceAccountAddOnManager)
	placement, works := asHubAccount(t, existing, fleet.ServiceAccountPlacementController),
		asHubAccount(t, existing, fleet.ServiceAccountWorkController)

	administrator, agent := pkix.Name{CommonName: "system:kube-controller-manager"}, framework.AgentSubject(name, "agent1")
	ofAddOn := map[string]string{fleet.LabelClusterName: name, fleet.LabelAddOnName: name}
	asCluster := impersonate(t, existing, fleet.ClusterUser(name, "agent1"), fleet.ClusterGroups(name)...)
	framework.Create(t, admin, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fleet.ClusterRoleBootstrap},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(name)}}})
	requested := func(by client.Client, subject pkix.Name, labels map[string]string) *certificatesv1.CertificateSigningRequest {
		var csr *certificatesv1.CertificateSigningRequest
		env.Eventually(t, func(ctx context.Context) error { // until the binding is in force
			csr, _ = framework.NewRequest(t, subject, labels)
			return by.Create(ctx, csr)
		})
		return csr
	}
	approve := func(c client.Client, csr *certificatesv1.CertificateSigningRequest) error {
		csr = csr.DeepCopy()
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue, Reason: "Stolen"}}
		return c.SubResource("approval").Update(t.Context(), csr, client.DryRunAll)
	}
	withoutLabel, forAdministrator := requested(admin, agent, nil), requested(admin, administrator, framework.OfCluster(name))
	ofSomebodyElse, administratorOfAddOn := requested(admin, agent, ofAddOn), requested(asCluster, administrator, ofAddOn)

	tokenOf := func(c client.Client, namespace, account string) error {
		who := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
		return c.SubResource("token").Create(t.Context(), who, &authenticationv1.TokenRequest{})
	}
	try := func(c client.Client, o client.Object) error { return c.Create(t.Context(), o, client.DryRunAll) }
	change := func(c client.Client, o client.Object, patch string) error {
		return c.Patch(t.Context(), o, framework.Merge(patch), client.DryRunAll)
	}
	remove := func(c client.Client, o client.Object) error { return c.Delete(t.Context(), o, client.DryRunAll) }
	bindingTo := func(namespace, binding, kind, role string, labels map[string]string, subject rbacv1.Subject) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: binding, Labels: labels},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}, Subjects: []rbacv1.Subject{subject}}
	}
	tokenRole := func(namespace string, names ...string) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-token-role",
			Labels: map[string]string{fleet.LabelTokenInfrastructure: "true"}},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: names,
				Verbs: []string{"create"}}}}
	}
	clusterRoleOf := func(cluster string, labels map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.ManagedClusterClusterRole(cluster), Labels: labels}, Rules: rules}
	}
	itself := func(account string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: fleet.NamespaceHub, Name: account}
	}
	lease := func(namespace string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	mc := func() *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}

	attempts := map[string]func() error{
		"registration asks for a certificate itself": func() error {
			csr, _ := framework.NewRequest(t, agent, framework.OfCluster(name))
			return try(registration,
				csr)
		},
		"registration approves an administrator":  func() error { return approve(registration, forAdministrator) },
		"registration approves without the label": func() error { return approve(registration, withoutLabel) },
		"registration approves an add-on":         func() error { return approve(registration, ofSomebodyElse) },
		"registration reports on a work": func() error {
			return registration.Status().Patch(t.Context(), framework.Work(name, name), framework.Merge(`{"status":{"conditions":[]}}`))
		},
		"registration deletes a role of Kubernetes": func() error {
			return remove(registration, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "admin"}})
		},
		"registration takes rights from the administrators": func() error {
			return remove(registration, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"}})
		},
		"registration gives its rights to a user": func() error {
			return try(registration, bindingTo(name, fleet.WorkRoleBinding(name), "ClusterRole", fleet.ClusterRoleWork, nil,
				itself(fleet.ServiceAccountRegistrationController)))
		},
		"registration gives rights to another cluster": func() error {
			return try(registration, bindingTo(name, fleet.WorkRoleBinding(name), "ClusterRole", fleet.ClusterRoleWork, nil,
				rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup("other")}))
		},
		"registration binds a role of another name": func() error {
			return try(registration, bindingTo(name, name, "ClusterRole", fleet.ClusterRoleWork, nil,
				rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(name)}))
		},
		"registration gives an agent the right to approve": func() error {
			return try(registration, clusterRoleOf("approver", nil,
				rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests/approval"},
					Verbs: []string{"update"}},
				rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"},
					ResourceNames: []string{fleet.SignerKubeAPIServerClient}, Verbs: []string{"approve"}}))
		},
		"registration gives an agent another cluster": func() error {
			return try(registration, clusterRoleOf("greedy", nil,
				rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"managedclusters"}, Verbs: []string{"get"}}))
		},
		"registration gives viewers a role": func() error {
			return try(registration, clusterRoleOf("seen", map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"},
				rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"},
					Verbs: []string{"get"}}))
		},
		"registration gives an agent the works of all clusters": func() error {
			return try(registration, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fleet.ManagedClusterClusterRole(name)},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fleet.ClusterRoleWork},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(name)}}})
		},
		"registration makes a namespace for privileged pods": func() error {
			return try(registration, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "privileged",
				Labels: map[string]string{fleet.LabelClusterName: "privileged", "pod-security.kubernetes.io/enforce": "privileged"}}})
		},
		"registration takes the lease of another controller": func() error { return try(registration, lease("kube-system")) },
		"registration takes over a namespace of Kubernetes": func() error {
			return change(registration, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, `{"metadata":{"labels":{"`+
				fleet.LabelClusterName+`":"kube-system"}}}`)
		},
		"registration takes over a namespace as of another": func() error {
			return change(registration, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, `{"metadata":{"labels":{"`+
				fleet.LabelClusterName+`":"other"}}}`)
		},
		"registration lets pods be privileged": func() error {
			return change(registration, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
				`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)
		},
		"registration deletes a namespace": func() error {
			return remove(registration, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		},
		"registration changes what a set selects": func() error {
			return change(registration, &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}},
				`{"spec":{"clusterSelector":{"selectorType":"LabelSelector"}}}`)
		},
		"registration reads secrets": func() error { return registration.List(t.Context(), &corev1.SecretList{}) },

		"add-ons get a token of Kubernetes": func() error { return tokenOf(addOns, "kube-system", "default") },
		"add-ons get a token of the hub": func() error {
			return tokenOf(addOns, fleet.NamespaceHub,
				fleet.ServiceAccountRegistrationController)
		},
		"add-ons get a token in a cluster's namespace": func() error { return tokenOf(addOns, name, name) },
		"add-ons give tokens of Kubernetes":            func() error { return try(addOns, tokenRole("kube-system", "x-agent")) },
		"add-ons give all tokens of a namespace":       func() error { return try(addOns, tokenRole(name)) },
		"add-ons give tokens of others":                func() error { return try(addOns, tokenRole(name, name)) },
		"add-ons give their rights to a user": func() error {
			return try(addOns, bindingTo(name, name, "ClusterRole", fleet.ClusterRoleWork, ofAddOn, itself(fleet.ServiceAccountAddOnManager)))
		},
		"add-ons give an account of their own making their rights": func() error {
			return try(addOns, bindingTo("kube-system", name, "ClusterRole", "open-cluster-management:cluster-manager-addon-manager:controller",
				ofAddOn,
				rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "attacker", Name: "x-agent"}))
		},
		"add-ons give an agent their rights": func() error {
			return try(addOns, bindingTo("kube-system", name, "ClusterRole", "open-cluster-management:cluster-manager-addon-manager:controller",
				ofAddOn,
				rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(name)}))
		},
		"add-ons give a cluster the tokens of another": func() error {
			tokens := map[string]string{fleet.LabelTokenInfrastructure: "true"}
			return try(addOns, bindingTo(name, name+"-token-role", "Role", name+"-token-role", tokens,
				rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup("other")}))
		},
		"add-ons take rights from Kubernetes": func() error {
			return remove(addOns, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
				Name: "system::leader-locking-kube-scheduler"}})
		},
		"add-ons make a service account for Kubernetes": func() error {
			return try(addOns, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "x-agent",
				Labels: map[string]string{fleet.LabelTokenInfrastructure: "true"}}})
		},
		"add-ons delete a service account": func() error {
			return remove(addOns, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})
		},
		"add-ons approve what another user asks for": func() error { return approve(addOns, ofSomebodyElse) },
		"add-ons approve an agent of a cluster":      func() error { return approve(addOns, forAdministrator) },
		"add-ons approve an administrator":           func() error { return approve(addOns, administratorOfAddOn) },
		"add-ons move a cluster to another set": func() error {
			return change(addOns, mc(), `{"metadata":{"labels":{"`+fleet.LabelClusterSet+`":"other"}}}`)
		},
		"add-ons taint a cluster": func() error {
			return change(addOns, mc(),
				`{"spec":{"taints":[{"key":"a","effect":"NoSelect"}]}}`)
		},
		"add-ons annotate a cluster":                   func() error { return change(addOns, mc(), `{"metadata":{"annotations":{"a":"b"}}}`) },
		"add-ons take the lease of another controller": func() error { return try(addOns, lease("kube-system")) },
		"add-ons read secrets":                         func() error { return addOns.List(t.Context(), &corev1.SecretList{}) },

		"placement makes a placement": func() error {
			return placement.Create(t.Context(), &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: name, GenerateName: name + "-"}})
		},
		"placement takes the lease of another controller": func() error { return try(placement, lease("kube-system")) },
		"works changes a set": func() error {
			return change(works, framework.ReplicaSet(name, name, ""), `{"spec":{"placementRefs":[{"name":"other"}]}}`)
		},
		"works reads a secret": func() error {
			return works.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: name}, &corev1.Secret{})
		},
		"works takes the lease of another controller": func() error { return try(works, lease("kube-system")) },
	}
	for _, what := range slices.Sorted(maps.Keys(attempts)) {
		env.Eventually(t, func(context.Context) error { // until the policies are in force
			if err := attempts[what](); !apierrors.IsForbidden(err) {
				return fmt.Errorf("%s: %w", what, errors.Join(err, errors.New("it should have been forbidden")))
			}
			return nil
		})
	}
}

// AM-30 AM-34 AM-35 AM-40 RG-53: with these rights and policies a hub registers add-ons, by certificates, own signers and tokens.
func testAddOnRegistrationExisting(t *testing.T, existing *env.Server) {
	const name, signer = "registered-existing", "example.com/registered"
	admin := existing.Client(t)
	framework.Create(t, admin, framework.AcceptedCluster(name))
	framework.AwaitHubAccepted(t, admin, name, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	letAddOnsRegister(t, admin, name, signer)
	template := &addonv1beta1.AddOnTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: addonv1beta1.AddOnTemplateSpec{
		AddonName: name, Registration: append(givingTemplate("view").Spec.Registration, addonv1beta1.RegistrationSpec{
			Type: addonv1beta1.RegistrationTypeCustomSigner, CustomSigner: &addonv1beta1.CustomSignerRegistrationSpec{
				SignerName: signer, Subject: &addonv1beta1.TemplateSubject{User: "hello"}, SigningCA: addonv1beta1.SigningCARef{Name: name},
			}}),
	}}
	template.Spec.Registration[0].KubeClient.HubPermissions[0].SingleNamespace.Namespace = metav1.NamespaceDefault
	template.Spec.AgentSpec.Workload.Manifests = framework.RawManifests(framework.ConfigMap("default", "a", "b"))
	framework.Create(t, admin, framework.NewSigningCA(t, fleet.NamespaceHub, name), template, &addonv1beta1.ClusterManagementAddOn{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: addonv1beta1.ClusterManagementAddOnSpec{DefaultConfigs: []addonv1beta1.AddOnConfig{{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: "addontemplates"},
			ConfigReferent:      addonv1beta1.ConfigReferent{Name: name},
		}}},
	}, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})

	agent := impersonate(t, existing, fleet.ClusterUser(name, "agent1"), fleet.ClusterGroups(name)...)
	labels := map[string]string{fleet.LabelClusterName: name, fleet.LabelAddOnName: name}
	awaitSigned(t, agent, pkix.Name{CommonName: fleet.AddOnUser(name, name, fleet.TemplateAgent(name)),
		Organization: fleet.AddOnGroups(name, name)}, labels, fleet.SignerKubeAPIServerClient)
	awaitSigned(t, agent, pkix.Name{CommonName: "hello", Organization: fleet.AddOnGroups(name, name)}, labels, signer)
	env.Eventually(t, func(ctx context.Context) error {
		bindings := &rbacv1.RoleBindingList{}
		if err := admin.List(ctx, bindings, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels(labels)); err != nil ||
			len(bindings.Items) != 1 {
			return fmt.Errorf("%d bindings: %w", len(bindings.Items), err)
		}
		return nil
	})
	testTokensExisting(t, admin, agent, name)
}

// testTokensExisting gives an add-on of the cluster a service account, and takes it away.
func testTokensExisting(t *testing.T, admin, agent client.Client, cluster string) {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "by-token"}}
	framework.Create(t, admin, addOn)
	byToken := `{"status":{"registrations":[{"type":"kubeClient","kubeClient":{"driver":"token"}}]}}`
	if err := admin.Status().Patch(t.Context(), addOn.DeepCopy(), framework.Merge(byToken)); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "by-token-agent"}}
	env.Eventually(t, func(ctx context.Context) error {
		return agent.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
	})
	env.Eventually(t, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionTokenInfrastructureReady) {
			return fmt.Errorf("status %+v", addOn.Status)
		}
		return nil
	})
	if err := admin.Status().Patch(t.Context(), addOn.DeepCopy(), framework.Merge(strings.Replace(byToken, "token", "csr", 1))); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, admin, account)
}

// letAddOnsRegister gives the add-on controllers what docs/existing-cluster.md leaves to the user who installs an add-on.
func letAddOnsRegister(t *testing.T, admin client.Client, name, signer string) {
	t.Helper()
	account := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: fleet.NamespaceHub, Name: fleet.ServiceAccountAddOnManager}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"view"}, Verbs: []string{"bind"}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{signer},
			Verbs: []string{"approve", "sign"}},
	}}
	secrets := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get"}},
	}}
	framework.Create(t, admin, role, secrets,
		&rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: name}, Subjects: account},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: name},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: account})
}

// awaitSigned asks for a certificate until there is one.
func awaitSigned(t *testing.T, c client.Client, subject pkix.Name, labels map[string]string, signer string) {
	t.Helper()
	csr, _ := framework.NewRequest(t, subject, labels)
	csr.Spec.SignerName = signer
	env.Eventually(t, func(ctx context.Context) error { return c.Create(ctx, csr) })
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return err
		}
		if len(csr.Status.Certificate) == 0 {
			return fmt.Errorf("no certificate for %s: %+v", subject, csr.Status)
		}
		return nil
	})
}
