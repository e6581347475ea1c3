package addon_test

import (
	"errors"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

func hello(registrations ...addonv1beta1.RegistrationConfig) addon.Installation {
	i := addon.Installation{Cluster: &clusterv1.ManagedCluster{}, AddOn: &addonv1beta1.ManagedClusterAddOn{}}
	i.Cluster.Name, i.AddOn.Namespace, i.AddOn.Name = "c1", "c1", "hello"
	i.AddOn.Status.Registrations = registrations
	return i
}

// AF-21: rights are given to the agents on this cluster, however they get their credential, and not to those on others.
func TestSubjects(t *testing.T) {
	t.Parallel()
	usual := addon.KubeClient(hello(), "hello")
	token := *usual.DeepCopy()
	token.KubeClient.Driver = addonv1beta1.KubeClientDriverToken
	declared := *usual.DeepCopy()
	declared.KubeClient.Driver = addonv1beta1.KubeClientDriverCSR
	own := addonv1beta1.RegistrationConfig{Type: addonv1beta1.KubeClient, KubeClient: &addonv1beta1.KubeClientConfig{
		Subject: addonv1beta1.KubeClientSubject{User: "ann", Groups: []string{"system:open-cluster-management:addon:hello"}}}}
	custom := addonv1beta1.RegistrationConfig{Type: addonv1beta1.CustomSigner,
		CustomSigner: &addonv1beta1.CustomSignerConfig{SignerName: "example.com/hello"}}
	group := rbacv1.Subject{APIGroup: "rbac.authorization.k8s.io", Kind: "Group",
		Name: "system:open-cluster-management:cluster:c1:addon:hello"}
	for name, test := range map[string]struct {
		registrations []addonv1beta1.RegistrationConfig
		want          rbacv1.Subject
	}{
		"not declared": {[]addonv1beta1.RegistrationConfig{usual}, group},
		"certificate":  {[]addonv1beta1.RegistrationConfig{custom, declared}, group},
		"token": {[]addonv1beta1.RegistrationConfig{token},
			rbacv1.Subject{Kind: "ServiceAccount", Namespace: "c1", Name: "hello-agent"}},
		"user of its own": {[]addonv1beta1.RegistrationConfig{own}, rbacv1.Subject{APIGroup: "rbac.authorization.k8s.io", Kind: "User",
			Name: "ann"}},
		"nobody yet":       {},
		"only own signers": {registrations: []addonv1beta1.RegistrationConfig{custom}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := addon.BindRoleIn(hello(test.registrations...), "shared", "reader")
			if test.want == (rbacv1.Subject{}) {
				if !errors.Is(err, addon.ErrSubjectNotReady) {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			want := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: "open-cluster-management:c1:hello:role:reader"},
				RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"},
				Subjects:   []rbacv1.Subject{test.want},
			}
			if err != nil || !equality.Semantic.DeepEqual(got, client.Object(want)) {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

// AF-21
func TestBindings(t *testing.T) {
	t.Parallel()
	i := hello(addon.KubeClient(hello(), "hello"))
	for name, test := range map[string]struct {
		bind            func() (client.Object, error)
		namespace, kind string
	}{
		"Role":                       {func() (client.Object, error) { return addon.BindRole(i, "r") }, "c1", "Role"},
		"ClusterRole":                {func() (client.Object, error) { return addon.BindClusterRole(i, "r") }, "c1", "ClusterRole"},
		"ClusterRole in a namespace": {func() (client.Object, error) { return addon.BindClusterRoleIn(i, "ns", "r") }, "ns", "ClusterRole"},
		"ClusterRole everywhere":     {func() (client.Object, error) { return addon.BindClusterRoleEverywhere(i, "r") }, "", "ClusterRole"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := test.bind()
			if err != nil {
				t.Fatal(err)
			}
			ref := rbacv1.RoleRef{}
			switch got := got.(type) {
			case *rbacv1.RoleBinding:
				ref = got.RoleRef
			case *rbacv1.ClusterRoleBinding:
				ref = got.RoleRef
			}
			if got.GetNamespace() != test.namespace || ref.Kind != test.kind || ref.Name != "r" {
				t.Errorf("%+v", got)
			}
		})
	}
	role := addon.NewRole(i, "r", rbacv1.PolicyRule{Verbs: []string{"get"}})
	if role.Namespace != "c1" || role.Name != "r" || len(role.Rules) != 1 {
		t.Errorf("%+v", role)
	}
}
