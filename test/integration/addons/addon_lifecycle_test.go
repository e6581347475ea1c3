package addons

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	addonconfig "github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

func newAddOnSite(t *testing.T, name string, clusters ...string) *framework.AddOnSite {
	t.Helper()
	return framework.NewAddOnSiteOn(t, framework.Hub, name, clusters...)
}

// byInstallStrategy is the example of the documentation of the install strategy.
const byInstallStrategy = `apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ClusterManagementAddOn
metadata:
  name: helloworld
  annotations:
    addon.open-cluster-management.io/lifecycle: "addon-manager"
spec:
  addOnMeta:
    displayName: helloworld
  installStrategy:
    type: Placements
    placements:
    - name: placement-aws
      namespace: default
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata:
  name: placement-aws
  namespace: default
spec:
  predicates:
    - requiredClusterSelector:
        claimSelector:
          matchExpressions:
            - key: platform.open-cluster-management.io
              operator: In
              values:
                - aws
`

// manual is the example of enabling an add-on by hand.
const manual = `apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ManagedClusterAddOn
metadata:
  name: helloworld
  namespace: cluster1
spec:
  installNamespace: helloworld
`

// AM-02, AM-03, AM-11, A5, AM-01: placements install an add-on and move it with their decisions; what a user has enabled by
// hand stays; all of it goes with the ClusterManagementAddOn.
func TestAddOnInstallStrategy(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-install", "cluster1")
	s.Join(t, "aws1", nil, "aws")
	s.Join(t, "aws2", nil, "aws")
	s.Join(t, "gcp", nil, "gcp")
	s.Apply(t, manual)
	s.Apply(t, byInstallStrategy)
	s.AwaitInstalled(t, "aws1", "aws2", "cluster1")

	entry := s.AwaitProgression(t, metav1.ConditionFalse,
		"selected clusters 2. configured addons 2/2 completed with no errors, 0 failed 0 timeout.")
	for _, end := range []string{"aws1", "cluster1"} {
		s.Await(t, end, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
			if len(addOn.OwnerReferences) != 1 || addOn.OwnerReferences[0].UID != entry.UID {
				return fmt.Errorf("%s is owned by %v", end, addOn.OwnerReferences)
			}
			return nil
		})
	}
	aws1 := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-aws1"}}
	const annotation = "addon.open-cluster-management.io/values"
	s.Edit(t, aws1, func() { metav1.SetMetaDataAnnotation(&aws1.ObjectMeta, annotation, "{}") })
	s.Await(t, "aws1", func(addOn *addonv1beta1.ManagedClusterAddOn) error { return wantAnnotation(addOn, annotation, "{}") })
	s.Edit(t, aws1, func() { delete(aws1.Annotations, annotation) })
	s.Await(t, "aws1", func(addOn *addonv1beta1.ManagedClusterAddOn) error { return wantAnnotation(addOn, annotation, "") })

	aws1.Status.ClusterClaims[0].Value = "gcp"
	env.Eventually(t, func(ctx context.Context) error { return s.Claim(ctx, "aws1", "gcp") })
	env.Eventually(t, func(ctx context.Context) error { return s.Claim(ctx, "gcp", "aws") })
	s.AwaitInstalled(t, "aws2", "cluster1", "gcp")

	if err := s.C.Delete(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	s.AwaitInstalled(t)
}

func wantAnnotation(o client.Object, key, value string) error {
	if have := o.GetAnnotations()[key]; have != value {
		return fmt.Errorf("annotation %s is %q, want %q", key, have, value)
	}
	return nil
}

func exampleConfig(name string) string {
	return fmt.Sprintf(`apiVersion: example.open-cluster-management.io/v1
kind: ExampleConfig
metadata:
  name: %s
  namespace: open-cluster-management
spec:
  size: 3
`, name)
}

// exampleDefinition is the kind of the examples of the documentation.
func exampleDefinition(group string) string {
	return strings.ReplaceAll(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: exampleconfigs.GROUP
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: exampleconfigs, singular: exampleconfig, kind: ExampleConfig, listKind: ExampleConfigList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, "GROUP", group)
}

// The examples of the documentation of configurations: of defaults, of those per install strategy, and of those per
// cluster.
const (
	defaultConfigs = `apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ClusterManagementAddOn
metadata:
  name: helloworld
  annotations:
    addon.open-cluster-management.io/lifecycle: "addon-manager"
spec:
  addOnMeta:
    displayName: helloworld
  supportedConfigs:
  - defaultConfig:
      name: default-deploy-config
      namespace: open-cluster-management
    group: addon.open-cluster-management.io
    resource: addondeploymentconfigs
  - defaultConfig:
      name: default-example-config
      namespace: open-cluster-management
    group: example.open-cluster-management.io
    resource: exampleconfigs
`
	strategyConfigs = `  installStrategy:
    type: Placements
    placements:
    - name: placement-aws
      namespace: default
      configs:
      - group: addon.open-cluster-management.io
        resource: addondeploymentconfigs
        name: deploy-config
        namespace: open-cluster-management
      - group: example.open-cluster-management.io
        resource: exampleconfigs
        name: example-config-1
        namespace: open-cluster-management
      - group: example.open-cluster-management.io
        resource: exampleconfigs
        name: example-config-2
        namespace: open-cluster-management
`
	clusterConfigs = `apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ManagedClusterAddOn
metadata:
  name: helloworld
  namespace: cluster1
spec:
  configs:
  - group: addon.open-cluster-management.io
    resource: addondeploymentconfigs
    name: cluster1-deploy-config
    namespace: open-cluster-management
  - group: example.open-cluster-management.io
    resource: exampleconfigs
    name: cluster1-example-config
    namespace: open-cluster-management
`
)

// AM-05 to AM-09: which configurations take effect, as the examples of the documentation say; and that they are the
// applied ones once the works made of them are ready.
func TestAddOnConfigurations(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-configs", "cluster1", "cluster2")
	s.Join(t, "aws", nil, "aws")
	s.Apply(t, exampleDefinition("example.open-cluster-management.io"))
	for _, name := range []string{"default-", "", "cluster1-"} {
		s.Apply(t, framework.DeploymentConfig(name+"deploy-config", name))
	}
	for _, name := range []string{"default-example-config", "example-config-1", "example-config-2", "cluster1-example-config"} {
		s.Apply(t, exampleConfig(name))
	}
	s.Apply(t, defaultConfigs)
	for _, cluster := range []string{"cluster1", "cluster2", "aws"} {
		s.Apply(t, strings.ReplaceAll(manual, "cluster1", s.Name+"-"+cluster))
	}
	for _, end := range []string{"cluster1", "cluster2", "aws"} {
		s.Await(t, end, s.Desires(t, "addondeploymentconfigs default-deploy-config", "exampleconfigs default-example-config"))
	}
	s.Await(t, "cluster2", framework.HasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionTrue, fleet.ReasonConfigurationsConfigured, ""))
	s.Await(t, "cluster2", framework.HasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonWaitingForManifestApplied, ""))

	s.Apply(t, defaultConfigs+strategyConfigs)
	s.Apply(t, strings.SplitN(byInstallStrategy, "\n---\n", 2)[1])
	s.Apply(t, clusterConfigs)
	s.Await(t, "aws", s.Desires(t, "addondeploymentconfigs deploy-config", "exampleconfigs example-config-1",
		"exampleconfigs example-config-2"))
	s.Await(t, "cluster1", s.Desires(t, "addondeploymentconfigs cluster1-deploy-config", "exampleconfigs cluster1-example-config"))
	s.Await(t, "cluster2", s.Desires(t, "addondeploymentconfigs default-deploy-config", "exampleconfigs default-example-config"))

	s.Deploy(t, "cluster1", metav1.ConditionTrue)
	done := s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonCompleted, ""))
	for _, reference := range done.Status.ConfigReferences {
		if !reflect.DeepEqual(reference.LastAppliedConfig, reference.DesiredConfig) || reference.LastObservedGeneration != 1 {
			t.Errorf("%+v", reference)
		}
	}
	s.Apply(t, framework.DeploymentConfig("cluster1-deploy-config", "another"))
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionTrue, fleet.ReasonProgressing,
		"mca and work configs mismatch"))
	changed := s.Await(t, "cluster1", s.Desires(t, "addondeploymentconfigs cluster1-deploy-config", "exampleconfigs cluster1-example-config"))
	if first := changed.Status.ConfigReferences[0]; reflect.DeepEqual(first.LastAppliedConfig, first.DesiredConfig) ||
		first.LastAppliedConfig == nil || first.LastObservedGeneration != 2 {
		t.Errorf("%+v", first)
	}
	s.Deploy(t, "cluster1", metav1.ConditionUnknown)
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionTrue, fleet.ReasonProgressing, "work is not ready"))
	s.Deploy(t, "cluster1", metav1.ConditionTrue)
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonCompleted, ""))

	// What the add-on does not support has no effect, and is shown (A8).
	addOn := s.Await(t, "cluster1", func(*addonv1beta1.ManagedClusterAddOn) error { return nil })
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, s.Key("cluster1"), addOn); err != nil {
			return err
		}
		addOn.Status.SupportedConfigs = []addonv1beta1.ConfigGroupResource{{Group: "addon.open-cluster-management.io",
			Resource: "addondeploymentconfigs"}}
		return s.C.Status().Update(ctx, addOn)
	})
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonConfigurationUnsupported,
		"Configuration with gvr example.open-cluster-management.io/exampleconfigs is not supported for this addon"))
	s.Await(t, "cluster1", s.Desires(t, "addondeploymentconfigs cluster1-deploy-config", "exampleconfigs default-example-config"))
}

// AM-06, AM-08: an add-on whose configuration does not exist, or is of a kind that the hub does not serve, says so, and goes
// on when it is there.
func TestAddOnConfigurationsThatAreMissing(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-missing", "cluster1")
	const group = "lifecycle-missing.example.com"
	s.Apply(t, fmt.Sprintf(`apiVersion: addon.open-cluster-management.io/v1beta1
kind: ClusterManagementAddOn
metadata: {name: helloworld}
spec:
  defaultConfigs:
  - {group: %s, resource: exampleconfigs, namespace: open-cluster-management, name: one}
`, group))
	s.Apply(t, manual)
	no := func(text string) func(*addonv1beta1.ManagedClusterAddOn) error {
		return framework.HasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionFalse, fleet.ReasonConfigurationsNotConfigured, text)
	}
	s.Await(t, "cluster1", no("the hub serves no exampleconfigs."+group+": install"))
	s.Apply(t, exampleDefinition(group))
	s.Await(t, "cluster1", no("exampleconfigs."+group+" "+s.Name+"/one does not exist: create it"))
	s.Apply(t, strings.ReplaceAll(exampleConfig("one"), "example.open-cluster-management.io", group))
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionTrue, fleet.ReasonConfigurationsConfigured, ""))
	s.Await(t, "cluster1", s.Desires(t, "exampleconfigs one"))
}

// AM-03, AM-07: an add-on is announced its configurations before anything else is said of it, whether they exist or not, and
// whichever client created it: a manager that finds no reference deploys with defaults.
func TestAddOnConfigurationsAreAnnounced(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-announced", "manual")
	ends := []string{"c1", "c2", "manual"}
	taken := map[string]string{"taken": "yes"}
	for _, end := range ends[:2] {
		s.Join(t, end, taken, "")
	}
	said := map[string]watch.Interface{}
	for _, end := range ends {
		w, err := s.C.Watch(t.Context(), &addonv1beta1.ManagedClusterAddOnList{}, client.InNamespace(s.Name+"-"+end))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		said[end] = w
	}
	entry := entryOf(s.Name)
	entry.Spec.DefaultConfigs = []addonv1beta1.AddOnConfig{{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: "addondeploymentconfigs"},
		ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: s.Name, Name: "deploy-config"},
	}}
	entry.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyPlacements,
		Placements: []addonv1beta1.PlacementStrategy{{
			PlacementRef: addonv1beta1.PlacementRef{Namespace: s.Name, Name: "all"},
		}}}
	s.Place(t, "all", clusterv1beta1.PlacementSpec{Predicates: []clusterv1beta1.ClusterPredicate{{
		RequiredClusterSelector: clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchLabels: taken}},
	}}})
	framework.Create(t, s.C, entry, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name + "-manual",
		Name: s.Name}})
	for _, end := range ends {
		first := firstStatus(t, said[end])
		if len(first.ConfigReferences) != 1 || first.ConfigReferences[0].DesiredConfig == nil ||
			first.ConfigReferences[0].DesiredConfig.Name != "deploy-config" ||
			first.ConfigReferences[0].DesiredConfig.SpecHash != "" || first.ConfigReferences[0].LastObservedGeneration != 0 {
			t.Errorf("%s says first: %+v", end, first)
		}
		s.Await(t, end, framework.HasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionFalse, fleet.ReasonConfigurationsNotConfigured,
			s.Name+
				"/deploy-config does not exist: create it"))
	}
	s.Apply(t, framework.DeploymentConfig("deploy-config", "one"))
	for _, end := range ends {
		s.Await(t, end, s.Desires(t, "addondeploymentconfigs deploy-config"))
		s.Await(t, end, framework.HasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionTrue, fleet.ReasonConfigurationsConfigured, ""))
	}
}

// AM-07, AF-11: a manager that is faster than the hub is told so by a conflict, on which it tries again.
func TestAddOnIsConfiguredBeforeItIsDeployed(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-order", "c1")
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Key("c1").Namespace, Name: s.Name, Annotations: map[string]string{fleet.AnnotationInstalledBy: fleet.InstalledByStrategy},
	}}
	framework.Create(t, s.C, addOn)
	patch := func(change func(*addonv1beta1.ManagedClusterAddOnStatus)) error {
		if err := s.C.Get(t.Context(), s.Key("c1"), addOn); err != nil {
			t.Fatal(err)
		}
		before := addOn.DeepCopy()
		change(&addOn.Status)
		return s.C.Status().Patch(t.Context(), addOn, client.MergeFrom(before))
	}
	register := func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: fleet.ConditionRegistrationApplied, Status: metav1.ConditionTrue,
			Reason: fleet.ReasonSetPermissionApplied})
	}
	if err := patch(register); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "which configurations it has") {
		t.Errorf("registered before its configurations are known: %v", err)
	}
	if err := patch(func(status *addonv1beta1.ManagedClusterAddOnStatus) {
		status.ConfigReferences = addonconfig.Pending([]addonv1beta1.AddOnConfig{{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: "addondeploymentconfigs"},
			ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: s.Name, Name: "one"},
		}})
	}); err != nil {
		t.Fatal(err)
	}
	if err := patch(register); err != nil {
		t.Errorf("not registered when they are announced: %v", err)
	}
}

// firstStatus is the first status of the first add-on that is seen.
func firstStatus(t *testing.T, w watch.Interface) addonv1beta1.ManagedClusterAddOnStatus {
	t.Helper()
	for {
		select {
		case e := <-w.ResultChan():
			if addOn, ok := e.Object.(*addonv1beta1.ManagedClusterAddOn); ok &&
				!equality.Semantic.DeepEqual(addOn.Status, addonv1beta1.ManagedClusterAddOnStatus{}) {
				return addOn.Status
			}
		case <-time.After(env.WaitTimeout):
			t.Fatal("nothing is said of the add-on")
		}
	}
}

// AM-10, AM-20, AM-21: a change of the configuration reaches the canary groups in their order, each cluster soaks, then the
// others follow a quarter at a time.
func TestAddOnRollout(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-rollout", "c1", "c2", "c3", "c4")
	s.Join(t, "west", map[string]string{"canary": "west"}, "")
	s.Join(t, "east", map[string]string{"canary": "east"}, "")
	all := []string{"c1", "c2", "c3", "c4", "east", "west"}
	s.Apply(t, framework.DeploymentConfig("deploy-config", "one"))
	s.Apply(t, framework.Canaries)
	s.AwaitInstalled(t, all...)
	for _, turn := range []string{"west", "east", "c1", "c2", "c3", "c4"} {
		s.TurnOf(t, turn, all)
	}
	entry := s.AwaitProgression(t, metav1.ConditionFalse,
		"selected clusters 6. configured addons 6/6 completed with no errors, 0 failed 0 timeout.")
	one := entry.Status.InstallProgressions[0].ConfigReferences[0]
	if one.DesiredConfig.SpecHash == "" || !reflect.DeepEqual(one.LastAppliedConfig, one.DesiredConfig) ||
		!reflect.DeepEqual(one.LastKnownGoodConfig, one.DesiredConfig) {
		t.Errorf("%+v", one)
	}

	s.Apply(t, framework.DeploymentConfig("deploy-config", "two"))
	entry = s.AwaitProgression(t, metav1.ConditionTrue, "selected clusters 6. configured addons 1/6 progressing..., 0 failed 0 timeout.")
	if two := entry.Status.InstallProgressions[0].ConfigReferences[0]; two.DesiredConfig.SpecHash == one.DesiredConfig.SpecHash ||
		*two.LastKnownGoodConfig != *one.DesiredConfig {
		t.Errorf("%+v after %+v", two, one)
	}
	s.TurnOf(t, "west", all)
	s.AwaitHash(t, "east")
	s.Deploy(t, "east", metav1.ConditionFalse)
	s.Await(t, "east", framework.HasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonFailed, "could not be applied"))
	s.AwaitProgression(t, metav1.ConditionTrue, "configured addons 1/6 progressing..., 1 failed 0 timeout. stopped: 1 failure in")
	s.Deploy(t, "east", metav1.ConditionTrue)
	s.TurnOf(t, "c1", all)
	s.AwaitHash(t, "c2")
}

// RG-29, RG-30: labels of the cluster tell how its add-ons are doing; those of a lost cluster say that they are lost, too.
func TestAddOnHealthOfClusters(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-health", "cluster1")
	s.Apply(t, strings.SplitN(byInstallStrategy, "\n---\n", 2)[0])
	s.Apply(t, manual)
	label := "feature.open-cluster-management.io/addon-" + s.Name
	mc := &clusterv1.ManagedCluster{}
	awaitLabel := func(want string) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			if err := s.C.Get(ctx, client.ObjectKey{Name: s.Name + "-cluster1"}, mc); err != nil {
				return err
			}
			if have, found := mc.Labels[label]; have != want || found != (want != "") {
				return fmt.Errorf("label %s is %q, want %q", label, have, want)
			}
			return nil
		})
	}
	say := func(status metav1.ConditionStatus) {
		t.Helper()
		addOn := &addonv1beta1.ManagedClusterAddOn{}
		env.Eventually(t, func(ctx context.Context) error {
			if err := s.C.Get(ctx, s.Key("cluster1"), addOn); err != nil {
				return err
			}
			meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{Type: fleet.ConditionAvailable, Status: status, Reason: "Test"})
			return s.C.Status().Update(ctx, addOn)
		})
	}
	awaitLabel("unreachable")
	say(metav1.ConditionFalse)
	awaitLabel("unhealthy")
	say(metav1.ConditionTrue)
	awaitLabel("available")

	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, client.ObjectKeyFromObject(mc), mc); err != nil {
			return err
		}
		meta.RemoveStatusCondition(&mc.Status.Conditions, fleet.ConditionClusterAvailable)
		meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{
			Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionUnknown, Reason: fleet.ReasonManagedClusterLeaseUpdateStopped,
			Message:            "Registration agent stopped updating its lease.",
			LastTransitionTime: metav1.NewTime(time.Now().Add(time.Second)), // the times on the wire are of whole seconds
		})
		return s.C.Status().Update(ctx, mc)
	})
	s.Await(t, "cluster1", framework.HasAddOnCondition(fleet.ConditionAvailable, metav1.ConditionUnknown, fleet.ReasonManagedClusterLeaseUpdateStopped,
		"Registration agent stopped updating its lease."))
	awaitLabel("unreachable")

	addOn := s.Await(t, "cluster1", func(*addonv1beta1.ManagedClusterAddOn) error { return nil })
	if err := s.C.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	awaitLabel("")
}

// AM-04: of an add-on that manages itself, the hub maintains the default configurations alone.
func TestAddOnThatManagesItself(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-self", "cluster1", "cluster2")
	s.Apply(t, framework.DeploymentConfig("default-deploy-config", "one"))
	s.Apply(t, framework.DeploymentConfig("deploy-config", "one"))
	s.Apply(t, manual)
	itself := strings.NewReplacer(`"addon-manager"`, "self", "\n  supportedConfigs:\n", `
  supportedConfigs:
  - defaultConfig: {name: default-deploy-config, namespace: open-cluster-management}
    group: addon.open-cluster-management.io
    resource: addondeploymentconfigs
`, "  - group: addon.open-cluster-management.io\n    resource: addondeploymentconfigs\n  installStrategy",
		"  installStrategy").Replace(framework.Canaries)
	s.Apply(t, itself)
	env.Eventually(t, func(ctx context.Context) error {
		entry := &addonv1beta1.ClusterManagementAddOn{}
		if err := s.C.Get(ctx, client.ObjectKey{Name: s.Name}, entry); err != nil {
			return err
		}
		if references := entry.Status.DefaultConfigReferences; len(references) != 1 || references[0].DesiredConfig.SpecHash == "" ||
			len(entry.Status.InstallProgressions) != 0 {
			return fmt.Errorf("%+v", entry.Status)
		}
		return nil
	})
	s.AwaitInstalled(t, "cluster1")
	addOn := s.Await(t, "cluster1", func(*addonv1beta1.ManagedClusterAddOn) error { return nil })
	if len(addOn.Status.ConfigReferences) != 0 || len(addOn.Status.Conditions) != 0 {
		t.Errorf("%+v", addOn.Status)
	}
}
