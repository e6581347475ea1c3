package addons

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// templateOf is an AddOnTemplate of one ConfigMap, of the name of the add-on.
func templateOf(addOn, value string, registration ...addonv1beta1.RegistrationSpec) *addonv1beta1.AddOnTemplate {
	template := &addonv1beta1.AddOnTemplate{ObjectMeta: metav1.ObjectMeta{Name: addOn},
		Spec: addonv1beta1.AddOnTemplateSpec{AddonName: addOn, Registration: registration}}
	template.Spec.AgentSpec.Workload.Manifests = framework.RawManifests(framework.ConfigMap("default", addOn, value))
	return template
}

// entryOf is the ClusterManagementAddOn of such a template.
func entryOf(addOn string) *addonv1beta1.ClusterManagementAddOn {
	return &addonv1beta1.ClusterManagementAddOn{
		ObjectMeta: metav1.ObjectMeta{Name: addOn},
		Spec: addonv1beta1.ClusterManagementAddOnSpec{DefaultConfigs: []addonv1beta1.AddOnConfig{{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: "addontemplates"},
			ConfigReferent:      addonv1beta1.ConfigReferent{Name: addOn},
		}}},
	}
}

// AM-03, AM-20, AM-21, AM-30, AM-38: an add-on of a template comes to one cluster after the other, and so does the next state of the
// template. A cluster whose turn has not come keeps what it has, and at first nothing.
func TestAddOnTemplateRollout(t *testing.T) {
	t.Parallel()
	ends := []string{"cluster1", "cluster2", "cluster3"}
	s := newAddOnSite(t, "template-rollout", ends...)
	template, entry := templateOf(s.Name, "first"), entryOf(s.Name)
	entry.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyPlacements,
		Placements: []addonv1beta1.PlacementStrategy{{
			PlacementRef: addonv1beta1.PlacementRef{Namespace: s.Name, Name: "all"},
			RolloutStrategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.Progressive, Progressive: &clusterv1alpha1.RolloutProgressive{
				MaxConcurrency: ptr.To(intstr.FromInt32(1)),
			}},
		}}}
	s.Place(t, "all", clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Site.Await(t, "all", ends...)
	framework.Create(t, s.C, template, entry)
	s.AwaitInstalled(t, ends...)
	for i, end := range ends {
		s.AwaitWork(t, end, s.Name, "first")
		for _, later := range ends[i+1:] {
			s.Await(t, later, framework.HasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionFalse, fleet.ReasonConfigurationsNotConfigured,
				"Waiting for the rollout"))
			if _, err := s.HasWork(t.Context(), later, s.Name, ""); !apierrors.IsNotFound(err) {
				t.Errorf("%s has a work before its turn: %v", later, err)
			}
		}
		s.Finish(t, end, s.Name)
	}
	s.AwaitProgression(t, metav1.ConditionFalse, "configured addons 3/3 completed with no errors")

	s.Edit(t, template, func() {
		template.Spec.AgentSpec.Workload.Manifests = framework.RawManifests(framework.ConfigMap("default", s.Name, "second"))
	})
	for i, end := range ends {
		s.AwaitWork(t, end, s.Name, "second")
		for _, later := range ends[i+1:] {
			if has, err := s.HasWork(t.Context(), later, s.Name, "first"); err != nil || !has {
				t.Errorf("%s has not kept what it had: %v", later, err)
			}
		}
		s.Finish(t, end, s.Name)
	}
	s.AwaitProgression(t, metav1.ConditionFalse, "configured addons 3/3 completed with no errors")
}

// A4: an add-on comes to a cluster after the one that it needs, and that one stays until it is gone, whichever is deleted first.
func TestAddOnDependencies(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "template-needs", "cluster1")
	base := s.Name + "-base"
	entry := entryOf(s.Name)
	entry.Annotations = map[string]string{fleet.AnnotationDependsOn: base}
	framework.Create(t, s.C, templateOf(base, "base"), entryOf(base), templateOf(s.Name, "next"), entry)
	addOn := func(name string) *addonv1beta1.ManagedClusterAddOn {
		return &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name + "-cluster1", Name: name}}
	}
	framework.Create(t, s.C, addOn(s.Name), addOn(base))
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionManifestApplied, metav1.ConditionFalse, fleet.ReasonWaitingForDependencies, base))
	if _, err := s.HasWork(t.Context(), "cluster1", s.Name, ""); !apierrors.IsNotFound(err) {
		t.Errorf("it is deployed before what it needs: %v", err)
	}
	s.AwaitWork(t, "cluster1", base, "base")
	s.Finish(t, "cluster1", base)
	s.AwaitWork(t, "cluster1", s.Name, "next")

	if err := s.C.Delete(t.Context(), addOn(base)); err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, s.C, addOn(base), func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if addOn.DeletionTimestamp.IsZero() {
			return errors.New("it is not being deleted")
		}
		return nil
	})
	if _, err := s.HasWork(t.Context(), "cluster1", base, ""); err != nil {
		t.Errorf("what another add-on needs is gone: %v", err)
	}
	if err := s.C.Delete(t.Context(), addOn(s.Name)); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, s.C, addOn(s.Name))
	framework.AwaitGone(t, s.C, addOn(base))
}

// RG-53, AM-34, AM-40: the agent of a template gets a token, and the rights of the template are those of its service account.
func TestAddOnTemplateToken(t *testing.T) {
	t.Parallel()
	const name = "template-token"
	c := framework.Hub.Client(t)
	framework.Create(t, c,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}},
		templateOf(name, "token", addonv1beta1.RegistrationSpec{Type: addonv1beta1.RegistrationTypeKubeClient,
			KubeClient: &addonv1beta1.KubeClientRegistrationSpec{
				HubPermissions: []addonv1beta1.HubPermissionConfig{{
					Type:           addonv1beta1.HubPermissionsBindingCurrentCluster,
					CurrentCluster: &addonv1beta1.CurrentClusterBindingConfig{ClusterRoleName: name},
				}},
			}}),
		entryOf(name))
	framework.Namespace(t, framework.Managed.Client(t), fleet.NamespaceAgentAddOn)
	env.Join(t, framework.Hub, framework.Managed, name, "--addon-kubeclient-registration-auth", "token")
	framework.Create(t, c, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})

	secret := framework.AwaitSecret(t, framework.Managed.Client(t), fleet.NamespaceAgentAddOn, name+"-hub-kubeconfig",
		[]string{"kubeconfig", "token"}, framework.AnySecret)
	config := framework.ConfigOf(t, secret)
	if who := framework.WhoIs(t, config); who.Username != fleet.AddOnTokenUser(name, name) {
		t.Errorf("the agent is %q", who.Username)
	}
	agent := env.ClientFor(t, config)
	env.Eventually(t, func(ctx context.Context) error {
		return agent.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(name))
	})
	if err := agent.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default")); !apierrors.IsForbidden(err) {
		t.Errorf("it may read elsewhere: %v", err)
	}
}

// AM-30, AM-38: an add-on of a template that names none yet waits for it without failing, and says what is missing. A template for another
// add-on is used, and told of.
func TestAddOnTemplateThatIsNotNamed(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "template-unnamed", "cluster1")
	entry := entryOf(s.Name)
	entry.Spec.DefaultConfigs[0].Name = addonv1beta1.ReservedNoDefaultConfigName
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name + "-cluster1", Name: s.Name}}
	framework.Create(t, s.C, entry, addOn)
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending,
		"name one as default in its ClusterManagementAddOn"))
	template := templateOf(s.Name, "used")
	template.Spec.AddonName = "another"
	framework.Create(t, s.C, template)
	config := entryOf(s.Name).Spec.DefaultConfigs[0]
	s.Edit(t, addOn, func() { addOn.Spec.Configs = []addonv1beta1.AddOnConfig{config} })
	s.AwaitWork(t, "cluster1", s.Name, "used")
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionRegistrationApplied, metav1.ConditionTrue, fleet.ReasonSetPermissionApplied, ""))
	awaitAddOnEvent(t, addOn, fleet.EventAddOnTemplateOfAnother, "it is for the add-on another")
	for line := range strings.Lines(framework.Hub.Log()) {
		if strings.Contains(line, "Reconciler error") && strings.Contains(line, `name="`+s.Name+`"`) &&
			strings.Contains(line, "AddOnTemplate for the add-on") {
			t.Error(line)
		}
	}
}
