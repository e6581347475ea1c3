package admission_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/admission"
)

// A2, AM-34, AM-35: each role and each Secret is reviewed where it is, unless it was given before to the same add-on, for the same.
func TestGrantsOfAddOnTemplate(t *testing.T) {
	t.Parallel()
	current := addonv1beta1.HubPermissionConfig{Type: "CurrentCluster",
		CurrentCluster: &addonv1beta1.CurrentClusterBindingConfig{ClusterRoleName: "admin"}}
	single := func(kind string) addonv1beta1.HubPermissionConfig {
		return addonv1beta1.HubPermissionConfig{Type: "SingleNamespace", SingleNamespace: &addonv1beta1.SingleNamespaceBindingConfig{
			Namespace: "shared", RoleRef: rbacv1.RoleRef{Kind: kind, Name: "admin"},
		}}
	}
	access := func(permissions ...addonv1beta1.HubPermissionConfig) addonv1beta1.RegistrationSpec {
		return addonv1beta1.RegistrationSpec{Type: "KubeClient",
			KubeClient: &addonv1beta1.KubeClientRegistrationSpec{HubPermissions: permissions}}
	}
	signer := func(user, namespace string) addonv1beta1.RegistrationSpec {
		return addonv1beta1.RegistrationSpec{Type: "CustomSigner", CustomSigner: &addonv1beta1.CustomSignerRegistrationSpec{
			SignerName: "example.com/hello", Subject: &addonv1beta1.TemplateSubject{User: user},
			SigningCA: addonv1beta1.SigningCARef{Namespace: namespace, Name: "ca"},
		}}
	}
	of := func(addOn string, registrations ...addonv1beta1.RegistrationSpec) *addonv1beta1.AddOnTemplate {
		return &addonv1beta1.AddOnTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"},
			Spec: addonv1beta1.AddOnTemplateSpec{AddonName: addOn, Registration: registrations}}
	}
	const (
		bindAll, bindThere = "bind clusterroles/.rbac.authorization.k8s.io /admin", "bind clusterroles/.rbac.authorization.k8s.io shared/admin"
		bindRole           = "bind roles/.rbac.authorization.k8s.io shared/admin"
		getCA, getOwnCA    = "get secrets/. open-cluster-management-hub/ca", "get secrets/. own/ca"
	)
	for _, test := range []struct {
		name     string
		now, old *addonv1beta1.AddOnTemplate
		reviewed []string
		says     string
	}{
		{"nothing", of("hello", access()), nil, nil, ""},
		{"the clusters", of("hello", access(current)), nil, []string{bindAll},
			`spec.registration[0].kubeClient.hubPermissions[0].currentCluster.clusterRoleName: Forbidden: user "ann" cannot give "admin" to agents in the namespaces of all clusters, which a ClusterRoleBinding allows: it needs the permission to bind clusterroles of rbac.authorization.k8s.io named "admin"`},
		{"a namespace", of("hello", access(single("ClusterRole"))), nil, []string{bindThere},
			`spec.registration[0].kubeClient.hubPermissions[0].singleNamespace.roleRef: Forbidden: user "ann" cannot give "admin" to agents in the namespace "shared"`},
		{"a role in a namespace", of("hello", access(single("Role"))), nil, []string{bindRole},
			`bind roles of rbac.authorization.k8s.io named "admin" in namespace "shared"`},
		{"a CA", of("hello", signer("a", "")), nil, []string{getCA},
			`spec.registration[0].customSigner.signingCA: Forbidden: user "ann" cannot have certificates signed with the Secret open-cluster-management-hub/ca: it needs the permission to get secrets named "ca"`},
		{"a CA elsewhere", of("hello", signer("a", "own")), nil, []string{getOwnCA}, "Secret own/ca"},
		{"all", of("hello", access(single("Role"), current), signer("a", "")), nil, []string{bindRole, bindAll, getCA},
			"spec.registration[1].customSigner.signingCA"},

		{"as before", of("hello", signer("a", ""), access(current)), of("hello", access(current), signer("a", "")), nil, ""},
		{"one more", of("hello", access(current, single("Role"))), of("hello", access(current)), []string{bindRole}, "hubPermissions[1]"},
		{"another role", of("hello", access(single("ClusterRole"))), of("hello", access(single("Role"))), []string{bindThere},
			"hubPermissions[0]"},
		{"another subject", of("hello", signer("b", "")), of("hello", signer("a", "")), []string{getCA}, "signingCA"},
		{"another CA", of("hello", signer("a", "own")), of("hello", signer("a", "")), []string{getOwnCA}, "signingCA"},
		{"another add-on", of("other", access(current), signer("a", "")), of("hello", access(current), signer("a", "")), []string{bindAll, getCA},
			"hubPermissions[0]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			nobody, allowed := &fakeAuthorizer{}, &fakeAuthorizer{allowed: test.reviewed}
			code := 0
			if test.says != "" {
				code = 403
			}
			checkStatus(t, admission.ValidateAddOnTemplate(t.Context(), test.now, test.old, nobody.sender(), admission.ManifestWorkOptions{}), code,
				test.says)
			if !slices.Equal(nobody.reviewed, test.reviewed) {
				t.Errorf("asked for %q, want %q", nobody.reviewed, test.reviewed)
			}
			checkStatus(t, admission.ValidateAddOnTemplate(t.Context(), test.now, test.old, allowed.sender(), admission.ManifestWorkOptions{}), 0)
		})
	}
}
