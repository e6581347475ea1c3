package addons

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// templateDeletion is that of an add-on of a template, which has the name of the add-on, as has the AddOnDeploymentConfig. That is in a
// namespace in which the agent has rights.
type templateDeletion struct{ deletion }

// AM-30, AM-34, A5, R12: whatever is deleted first of an add-on of a template, nothing remains; and the hooks run, as long as it is
// known what they are.
func TestAddOnTemplateDeletionOrders(t *testing.T) {
	t.Parallel()
	for _, order := range slices.Sorted(maps.Keys(deletionOrders)) {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			d := newTemplateDeletion(t, order)
			d.carryOut(t, deletionOrders[order](d.cluster, d.name), true)
			d.awaitRights(t, 0)
		})
	}
	for order, first := range map[string]func(name string) client.Object{
		"template": func(name string) client.Object {
			return &addonv1beta1.AddOnTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		},
		"configuration": func(name string) client.Object {
			return &addonv1beta1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Namespace: shared(name), Name: name}}
		},
	} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			d := newTemplateDeletion(t, order)
			if err := framework.Hub.Client(t).Delete(t.Context(), first(d.name)); err != nil {
				t.Fatal(err)
			}
			// Until it goes, it says what is missing, and stays as it is.
			awaitEngine(t, d.addOn, "Configured", metav1.ConditionFalse, "ConfigurationsNotConfigured")
			framework.AwaitConfigMap(t, framework.Managed.Client(t), d.cluster, "goes", "1")
			d.carryOut(t, []client.Object{d.addOn}, false)
			d.awaitRights(t, 0)
		})
	}
	t.Run("no-template-any-more", func(t *testing.T) {
		t.Parallel()
		d := newTemplateDeletion(t, "no-more")
		entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: d.name}}
		if err := framework.Hub.Client(t).Patch(t.Context(), entry, framework.Merge(`{"spec":{"defaultConfigs":null}}`)); err != nil {
			t.Fatal(err)
		}
		d.awaitRights(t, 0)
		d.carryOut(t, []client.Object{d.addOn}, false)
	})
}

func shared(name string) string { return name + "-shared" }

func newTemplateDeletion(t *testing.T, order string) *templateDeletion {
	t.Helper()
	d := &templateDeletion{deletion{cluster: "template-order-" + order, name: "template-order-" + order}}
	d.install(t, d.provide)
	d.awaitRights(t, 2)
	return d
}

func (d *templateDeletion) provide(t *testing.T, objects ...client.Object) {
	t.Helper()
	c := framework.Hub.Client(t)
	ns := framework.Namespace(t, c, shared(d.name))
	template := &addonv1beta1.AddOnTemplate{ObjectMeta: metav1.ObjectMeta{Name: d.name},
		Spec: addonv1beta1.AddOnTemplateSpec{AddonName: d.name}}
	for _, object := range objects {
		kind, err := c.GroupVersionKindFor(object)
		if err != nil {
			t.Fatal(err)
		}
		object.GetObjectKind().SetGroupVersionKind(kind)
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		template.Spec.AgentSpec.Workload.Manifests = append(template.Spec.AgentSpec.Workload.Manifests, framework.RawManifests(string(text))...)
	}
	template.Spec.Registration = []addonv1beta1.RegistrationSpec{{Type: addonv1beta1.RegistrationTypeKubeClient,
		KubeClient: &addonv1beta1.KubeClientRegistrationSpec{
			HubPermissions: []addonv1beta1.HubPermissionConfig{
				{Type: addonv1beta1.HubPermissionsBindingCurrentCluster,
					CurrentCluster: &addonv1beta1.CurrentClusterBindingConfig{ClusterRoleName: "view"}},
				{Type: addonv1beta1.HubPermissionsBindingSingleNamespace, SingleNamespace: &addonv1beta1.SingleNamespaceBindingConfig{
					Namespace: ns, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
				}},
			},
		}}}
	of := func(resource, namespace string) addonv1beta1.AddOnConfig {
		return addonv1beta1.AddOnConfig{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: resource},
			ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: namespace, Name: d.name},
		}
	}
	framework.Create(t, c, template, &addonv1beta1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: d.name}},
		&addonv1beta1.ClusterManagementAddOn{
			ObjectMeta: metav1.ObjectMeta{Name: d.name},
			Spec: addonv1beta1.ClusterManagementAddOnSpec{DefaultConfigs: []addonv1beta1.AddOnConfig{of("addontemplates", ""),
				of("addondeploymentconfigs", ns)}},
		})
}

// awaitRights waits until the agent has as many of the rights of the template.
func (d *templateDeletion) awaitRights(t *testing.T, want int) {
	t.Helper()
	c := framework.Hub.Client(t)
	env.Eventually(t, func(ctx context.Context) error {
		bindings := &rbacv1.RoleBindingList{}
		if err := c.List(ctx, bindings,
			client.MatchingLabels{fleet.LabelAddOnName: d.name, fleet.LabelAddOnManager: "addon-templates"}); err != nil {
			return err
		}
		if len(bindings.Items) != want {
			return fmt.Errorf("%d bindings, want %d", len(bindings.Items), want)
		}
		return nil
	})
}
