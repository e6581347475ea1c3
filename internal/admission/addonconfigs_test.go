package admission_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/admission"
)

// A2, AM-05: whoever names a configuration for one cluster may read it, and may grant what it grants, unless the add-on has it everywhere.
func TestConfigsOfManagedClusterAddOn(t *testing.T) {
	t.Parallel()
	config := func(resource, namespace, name string) addonv1beta1.AddOnConfig {
		return addonv1beta1.AddOnConfig{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: resource},
			ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: namespace, Name: name},
		}
	}
	template := func(name string) addonv1beta1.AddOnConfig { return config("addontemplates", "", name) }
	deployment := func(namespace string) addonv1beta1.AddOnConfig {
		return config("addondeploymentconfigs", namespace, "d")
	}
	of := func(addOn string, configs ...addonv1beta1.AddOnConfig) *addonv1beta1.ManagedClusterAddOn {
		return &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: addOn},
			Spec: addonv1beta1.ManagedClusterAddOnSpec{Configs: configs}}
	}
	other := config("things", "shared", "t")
	other.Group = "example.com"
	const (
		getTemplate        = "get addontemplates/.addon.open-cluster-management.io /infra"
		getLater           = "get addontemplates/.addon.open-cluster-management.io /later"
		getPlain           = "get addontemplates/.addon.open-cluster-management.io /plain"
		getDefault         = "get addontemplates/.addon.open-cluster-management.io /default"
		getDeployment      = "get addondeploymentconfigs/.addon.open-cluster-management.io shared/d"
		getThing           = "get things/.example.com shared/t"
		bindRole, getCA    = "bind clusterroles/.rbac.authorization.k8s.io /admin", "get secrets/. infra/ca"
		bindAll, bindRoles = "bind clusterroles/.rbac.authorization.k8s.io /", "bind roles/.rbac.authorization.k8s.io /"
		getSecrets         = "get secrets/. /"
	)
	for _, test := range []struct {
		name     string
		now, old *addonv1beta1.ManagedClusterAddOn
		needs    []string
		says     string // when the last one that it needs is missing
	}{
		{"nothing", of("hello"), nil, nil, ""},
		{"a default template", of("hello", template("default")), nil, nil, ""},
		{"no default", of("hello", template(addonv1beta1.ReservedNoDefaultConfigName)), nil, nil, ""},
		{"as before", of("hello", template("infra"), deployment("shared")), of("hello", deployment("shared"), template("infra")), nil, ""},
		{"fewer", of("hello", deployment("shared")), of("hello", deployment("shared"), template("infra")), nil, ""},
		{"a template", of("hello", template("plain")), nil, []string{getPlain},
			`spec.configs[0]: Forbidden: user "ann" cannot name what is no default of the add-on: it needs the permission to get addontemplates`},
		{"a template that grants", of("hello", template("infra")), nil, []string{getTemplate, bindRole, getCA},
			`spec.configs[0].name: Forbidden: AddOnTemplate "infra" is no default of the add-on, and has spec.registration[1].customSigner.signingCA: Forbidden: user "ann" cannot have certificates signed with the Secret infra/ca`},
		{"one more", of("hello", deployment("shared"), template("infra")), of("hello", deployment("shared")),
			[]string{getTemplate, bindRole, getCA}, "spec.configs[1].name"},
		{"a template with a namespace", of("hello", config("addontemplates", "c1", "infra")), nil, []string{getTemplate, bindRole, getCA},
			"spec.configs[0].name"},
		{"a template of another add-on", of("stray", template("default")), nil, []string{getDefault}, "get addontemplates"},
		{"one of another add-on that grants", of("stray", template("infra")), nil, []string{getTemplate, bindRole, getCA},
			"spec.configs[0].name"},
		{"a template that does not exist", of("hello", template("later")), nil, []string{getLater, bindAll, bindRoles, getSecrets},
			`spec.configs[0].name: Forbidden: AddOnTemplate "later" does not exist: name one that does`},
		{"a deployment of the cluster", of("hello", deployment("c1")), nil, nil, ""},
		{"a deployment elsewhere", of("hello", deployment("shared")), nil, []string{getDeployment},
			`it needs the permission to get addondeploymentconfigs of addon.open-cluster-management.io named "d" in namespace "shared"`},
		{"a default deployment", of("hello", deployment("defaults")), nil, nil, ""},
		{"another kind elsewhere", of("hello", other), nil, []string{getThing}, "get things of example.com"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			check := func(allowed []string) ([]string, error) {
				authorizer := &fakeAuthorizer{allowed: allowed}
				err := admission.ValidateManagedClusterAddOnConfigs(t.Context(), test.now, test.old, authorizer.sender(), addOnReader())
				return authorizer.reviewed, err
			}
			reviewed, err := check(test.needs)
			checkStatus(t, err, 0)
			if !slices.Equal(reviewed, test.needs) {
				t.Errorf("asked for %q, want %q", reviewed, test.needs)
			}
			if len(test.needs) > 0 {
				_, err := check(test.needs[:len(test.needs)-1])
				checkStatus(t, err, 403, test.says)
			}
		})
	}
}

// addOnReader has the add-on hello with the defaults default and defaults/d, and the templates default, plain and infra, which grants.
func addOnReader() admission.AddOnReader {
	configType := func(resource string) addonv1beta1.ConfigGroupResource {
		return addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: resource}
	}
	return admission.AddOnReader{
		ManagementAddOn: func(_ context.Context, name string) (*addonv1beta1.ClusterManagementAddOn, error) {
			if name != "hello" {
				return nil, apierrors.NewNotFound(addonv1beta1.GroupVersion.WithResource("clustermanagementaddons").GroupResource(), name)
			}
			entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: name}}
			entry.Spec.DefaultConfigs = []addonv1beta1.AddOnConfig{
				{ConfigGroupResource: configType("addontemplates"), ConfigReferent: addonv1beta1.ConfigReferent{Name: "default"}},
				{ConfigGroupResource: configType("addondeploymentconfigs"),
					ConfigReferent: addonv1beta1.ConfigReferent{Namespace: "defaults", Name: "d"}},
			}
			entry.Spec.InstallStrategy.Placements = []addonv1beta1.PlacementStrategy{{Configs: []addonv1beta1.AddOnConfig{
				{ConfigGroupResource: configType("addontemplates"), ConfigReferent: addonv1beta1.ConfigReferent{Name: "infra"}}}}}
			return entry, nil
		},
		Template: func(_ context.Context, name string) (*addonv1beta1.AddOnTemplate, error) {
			template := &addonv1beta1.AddOnTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
			template.Spec.AddonName = "hello"
			switch name {
			case "default", "plain":
				return template, nil
			case "infra":
				template.Spec.Registration = []addonv1beta1.RegistrationSpec{
					{Type: "KubeClient", KubeClient: &addonv1beta1.KubeClientRegistrationSpec{HubPermissions: []addonv1beta1.HubPermissionConfig{
						{Type: "CurrentCluster", CurrentCluster: &addonv1beta1.CurrentClusterBindingConfig{ClusterRoleName: "admin"}}}}},
					{Type: "CustomSigner", CustomSigner: &addonv1beta1.CustomSignerRegistrationSpec{SignerName: "example.com/infra",
						SigningCA: addonv1beta1.SigningCARef{Namespace: "infra", Name: "ca"}}},
				}
				return template, nil
			}
			return nil, apierrors.NewNotFound(addonv1beta1.GroupVersion.WithResource("addontemplates").GroupResource(), name)
		},
	}
}

// What cannot be read is not taken for something that grants nothing.
func TestConfigsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	broken := errors.New("no connection")
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	addOn.Spec.Configs = []addonv1beta1.AddOnConfig{{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addontemplates"},
		ConfigReferent:      addonv1beta1.ConfigReferent{Name: "plain"},
	}}
	withoutEntry, withoutTemplate := addOnReader(), addOnReader()
	withoutEntry.ManagementAddOn = func(context.Context, string) (*addonv1beta1.ClusterManagementAddOn, error) { return nil, broken }
	withoutTemplate.Template = func(context.Context, string) (*addonv1beta1.AddOnTemplate, error) { return nil, broken }
	for _, reader := range []admission.AddOnReader{withoutEntry, withoutTemplate} {
		all := &fakeAuthorizer{allowed: []string{"get addontemplates/.addon.open-cluster-management.io /plain"}}
		if err := admission.ValidateManagedClusterAddOnConfigs(t.Context(), addOn, nil, all.sender(), reader); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
	}
}

// A name that no AddOnTemplate can have does not reach the API server: it could be a path to something else.
func TestNamesOfTemplatesAreNoPaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../../../../api/v1/namespaces/x/secrets/y", "..", "a/b", "Upper", "a%2fb", "a?watch=true"} {
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
		addOn.Spec.Configs = []addonv1beta1.AddOnConfig{{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addontemplates"},
			ConfigReferent:      addonv1beta1.ConfigReferent{Name: name},
		}}
		reader := addOnReader()
		reader.Template = func(context.Context, string) (*addonv1beta1.AddOnTemplate, error) {
			t.Errorf("%s is read", name)
			return &addonv1beta1.AddOnTemplate{}, nil
		}
		all := &fakeAuthorizer{allowed: []string{"get addontemplates/.addon.open-cluster-management.io /" + name}}
		err := admission.ValidateManagedClusterAddOnConfigs(t.Context(), addOn, nil, all.sender(), reader)
		checkStatus(t, err, 403, "spec.configs[0].name: Invalid value: "+strconv.Quote(name)+": no AddOnTemplate has such a name")
	}
}
