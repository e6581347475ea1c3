package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// templateOf is an AddOnTemplate of one ConfigMap, of the name of the add-on.
func templateOf(addOn, value string, registration ...addonv1beta1.RegistrationSpec) *addonv1beta1.AddOnTemplate {
	template := &addonv1beta1.AddOnTemplate{ObjectMeta: metav1.ObjectMeta{Name: addOn},
		Spec: addonv1beta1.AddOnTemplateSpec{AddonName: addOn, Registration: registration}}
	template.Spec.AgentSpec.Workload.Manifests = raw(configMap("default", addOn, value))
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

// hasWork tells whether the hub has brought the value to a cluster. It fails if there is no work at all.
func (s *addOnSite) hasWork(ctx context.Context, end, addOn, value string) (bool, error) {
	w := &workv1.ManifestWork{}
	if err := s.c.Get(ctx, client.ObjectKey{Namespace: s.name + "-" + end, Name: "addon-" + addOn + "-deploy-0"}, w); err != nil {
		return false, err
	}
	return strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), value), nil
}

func (s *addOnSite) awaitWork(t *testing.T, end, addOn, value string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		has, err := s.hasWork(ctx, end, addOn, value)
		if err == nil && !has {
			return fmt.Errorf("%s has not come to %s", value, end)
		}
		return err
	})
}

// finish plays the agent of a cluster: the work of the add-on is done.
func (s *addOnSite) finish(t *testing.T, end, addOn string) {
	t.Helper()
	w := &workv1.ManifestWork{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.c.Get(ctx, client.ObjectKey{Namespace: s.name + "-" + end, Name: "addon-" + addOn + "-deploy-0"}, w); err != nil {
			return err
		}
		for _, kind := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test",
				ObservedGeneration: w.Generation})
		}
		return s.c.Status().Update(ctx, w)
	})
}

// AM-03, AM-20, AM-21, AM-30, AM-38: an add-on of a template comes to one cluster after the other, and so does the next state of the
// template. A cluster whose turn has not come keeps what it has, and at first nothing.
func TestAddOnTemplateRollout(t *testing.T) {
	t.Parallel()
	ends := []string{"cluster1", "cluster2", "cluster3"}
	s := newAddOnSite(t, "template-rollout", ends...)
	template, entry := templateOf(s.name, "first"), entryOf(s.name)
	entry.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyPlacements,
		Placements: []addonv1beta1.PlacementStrategy{{
			PlacementRef: addonv1beta1.PlacementRef{Namespace: s.name, Name: "all"},
			RolloutStrategy: clusterv1alpha1.RolloutStrategy{Type: clusterv1alpha1.Progressive, Progressive: &clusterv1alpha1.RolloutProgressive{
				MaxConcurrency: ptr.To(intstr.FromInt32(1)),
			}},
		}}}
	s.place(t, "all", clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{tolerant}})
	s.site.await(t, "all", ends...)
	create(t, s.c, template, entry)
	s.awaitInstalled(t, ends...)
	for i, end := range ends {
		s.awaitWork(t, end, s.name, "first")
		for _, later := range ends[i+1:] {
			s.await(t, later, hasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionFalse, fleet.ReasonConfigurationsNotConfigured,
				"Waiting for the rollout"))
			if _, err := s.hasWork(t.Context(), later, s.name, ""); !apierrors.IsNotFound(err) {
				t.Errorf("%s has a work before its turn: %v", later, err)
			}
		}
		s.finish(t, end, s.name)
	}
	s.awaitProgression(t, metav1.ConditionFalse, "configured addons 3/3 completed with no errors")

	s.edit(t, template, func() {
		template.Spec.AgentSpec.Workload.Manifests = raw(configMap("default", s.name, "second"))
	})
	for i, end := range ends {
		s.awaitWork(t, end, s.name, "second")
		for _, later := range ends[i+1:] {
			if has, err := s.hasWork(t.Context(), later, s.name, "first"); err != nil || !has {
				t.Errorf("%s has not kept what it had: %v", later, err)
			}
		}
		s.finish(t, end, s.name)
	}
	s.awaitProgression(t, metav1.ConditionFalse, "configured addons 3/3 completed with no errors")
}

// A4: an add-on comes to a cluster after the one that it needs, and that one stays until it is gone, whichever is deleted first.
func TestAddOnDependencies(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "template-needs", "cluster1")
	base := s.name + "-base"
	entry := entryOf(s.name)
	entry.Annotations = map[string]string{fleet.AnnotationDependsOn: base}
	create(t, s.c, templateOf(base, "base"), entryOf(base), templateOf(s.name, "next"), entry)
	addOn := func(name string) *addonv1beta1.ManagedClusterAddOn {
		return &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: s.name + "-cluster1", Name: name}}
	}
	create(t, s.c, addOn(s.name), addOn(base))
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionManifestApplied, metav1.ConditionFalse, fleet.ReasonWaitingForDependencies, base))
	if _, err := s.hasWork(t.Context(), "cluster1", s.name, ""); !apierrors.IsNotFound(err) {
		t.Errorf("it is deployed before what it needs: %v", err)
	}
	s.awaitWork(t, "cluster1", base, "base")
	s.finish(t, "cluster1", base)
	s.awaitWork(t, "cluster1", s.name, "next")

	if err := s.c.Delete(t.Context(), addOn(base)); err != nil {
		t.Fatal(err)
	}
	awaitObject(t, s.c, addOn(base), func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if addOn.DeletionTimestamp.IsZero() {
			return errors.New("it is not being deleted")
		}
		return nil
	})
	if _, err := s.hasWork(t.Context(), "cluster1", base, ""); err != nil {
		t.Errorf("what another add-on needs is gone: %v", err)
	}
	if err := s.c.Delete(t.Context(), addOn(s.name)); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, s.c, addOn(s.name))
	awaitGone(t, s.c, addOn(base))
}

// RG-53, AM-34, AM-40: the agent of a template gets a token, and the rights of the template are those of its service account.
func TestAddOnTemplateToken(t *testing.T) {
	t.Parallel()
	const name = "template-token"
	c := hub.Client(t)
	create(t, c,
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
	namespace(t, managed.Client(t), fleet.NamespaceAgentAddOn)
	env.Join(t, hub, managed, name, "--addon-kubeclient-registration-auth", "token")
	create(t, c, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})

	secret := awaitSecret(t, managed.Client(t), fleet.NamespaceAgentAddOn, name+"-hub-kubeconfig", []string{"kubeconfig", "token"}, anySecret)
	config := configOf(t, secret)
	if who := whoIs(t, config); who.Username != fleet.AddOnTokenUser(name, name) {
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
	entry := entryOf(s.name)
	entry.Spec.DefaultConfigs[0].Name = addonv1beta1.ReservedNoDefaultConfigName
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: s.name + "-cluster1", Name: s.name}}
	create(t, s.c, entry, addOn)
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending,
		"name one as default in its ClusterManagementAddOn"))
	template := templateOf(s.name, "used")
	template.Spec.AddonName = "another"
	create(t, s.c, template)
	config := entryOf(s.name).Spec.DefaultConfigs[0]
	s.edit(t, addOn, func() { addOn.Spec.Configs = []addonv1beta1.AddOnConfig{config} })
	s.awaitWork(t, "cluster1", s.name, "used")
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionRegistrationApplied, metav1.ConditionTrue, fleet.ReasonSetPermissionApplied, ""))
	awaitAddOnEvent(t, addOn, fleet.EventAddOnTemplateOfAnother, "it is for the add-on another")
	for line := range strings.Lines(hub.Log()) {
		if strings.Contains(line, "Reconciler error") && strings.Contains(line, `name="`+s.name+`"`) &&
			strings.Contains(line, "AddOnTemplate for the add-on") {
			t.Error(line)
		}
	}
}
