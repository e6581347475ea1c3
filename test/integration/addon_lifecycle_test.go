package integration

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	addonconfig "github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// addOnSite is a site with accepted clusters, and an add-on of the same name. The test is the manager of the add-on, and
// plays the agents.
type addOnSite struct{ *site }

func newAddOnSite(t *testing.T, name string, clusters ...string) *addOnSite {
	t.Helper()
	return newAddOnSiteOn(t, hub, name, clusters...)
}

func newAddOnSiteOn(t *testing.T, on *env.Server, name string, clusters ...string) *addOnSite {
	t.Helper()
	s := &addOnSite{newSiteOn(t, on, name)}
	for _, end := range clusters {
		s.join(t, end, nil, "")
	}
	return s
}

// join makes a cluster that is accepted and available, with labels and the claim of its platform.
func (s *addOnSite) join(t *testing.T, end string, labels map[string]string, platform string) {
	t.Helper()
	mc := s.add(t, end, labels)
	s.edit(t, mc, func() { mc.Spec.HubAcceptsClient = true })
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.c.Get(ctx, client.ObjectKeyFromObject(mc), mc); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(mc.Status.Conditions, fleet.ConditionHubAccepted) {
			return fmt.Errorf("cluster %s is not accepted: %v", mc.Name, mc.Status.Conditions)
		}
		meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionTrue,
			Reason: "Test"})
		if platform != "" {
			mc.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "platform.open-cluster-management.io", Value: platform}}
		}
		return s.c.Status().Update(ctx, mc)
	})
}

// edit changes an object, whichever other writers there are.
func (s *addOnSite) edit(t *testing.T, o client.Object, change func()) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return s.c.Update(ctx, o)
	})
}

// apply creates or replaces what YAML of the documentation says, with the add-on, the namespace default and cluster1 being those of the
// site.
func (s *addOnSite) apply(t *testing.T, documents string) {
	t.Helper()
	documents = strings.NewReplacer("helloworld", s.name, "namespace: default", "namespace: "+s.name,
		"namespace: open-cluster-management", "namespace: "+s.name, "namespace: cluster1", "namespace: "+s.name+"-cluster1").Replace(documents)
	for document := range strings.SplitSeq(documents, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, func(ctx context.Context) error {
			there := o.DeepCopy()
			err := s.c.Get(ctx, client.ObjectKeyFromObject(o), there)
			if apierrors.IsNotFound(err) {
				return s.c.Create(ctx, o.DeepCopy())
			}
			if err != nil {
				return err
			}
			there.Object["spec"] = o.Object["spec"]
			return s.c.Update(ctx, there)
		})
	}
}

func (s *addOnSite) key(end string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.name + "-" + end, Name: s.name}
}

// awaitInstalled waits until the add-on is installed on these clusters alone.
func (s *addOnSite) awaitInstalled(t *testing.T, ends ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		list := &addonv1beta1.ManagedClusterAddOnList{}
		if err := s.c.List(ctx, list); err != nil {
			return err
		}
		have := []string{}
		for _, addOn := range list.Items {
			if addOn.Name == s.name && addOn.DeletionTimestamp.IsZero() {
				have = append(have, strings.TrimPrefix(addOn.Namespace, s.name+"-"))
			}
		}
		slices.Sort(have)
		if !slices.Equal(have, ends) {
			return fmt.Errorf("installed on %v, want %v", have, ends)
		}
		return nil
	})
}

// await waits until a check of the add-on on a cluster finds nothing wrong.
func (s *addOnSite) await(t *testing.T, end string, check func(*addonv1beta1.ManagedClusterAddOn) error) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	env.Eventually(t, func(ctx context.Context) error {
		*addOn = addonv1beta1.ManagedClusterAddOn{}
		if err := s.c.Get(ctx, s.key(end), addOn); err != nil {
			return err
		}
		if err := check(addOn); err != nil {
			return fmt.Errorf("%w; status: %+v", err, addOn.Status)
		}
		return nil
	})
	return addOn
}

// hasAddOnCondition wants a condition with the status and reason, and the text in its message.
func hasAddOnCondition(kind string, status metav1.ConditionStatus, reason, text string) func(*addonv1beta1.ManagedClusterAddOn) error {
	return func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		cond := meta.FindStatusCondition(addOn.Status.Conditions, kind)
		if cond == nil || cond.Status != status || cond.Reason != reason || !strings.Contains(cond.Message, text) {
			return fmt.Errorf("%s is %+v, want %s, %s, %q", kind, cond, status, reason, text)
		}
		return nil
	}
}

// desires wants the configurations, by "resource name", in this order and with the hashes that the objects have.
func (s *addOnSite) desires(t *testing.T, configs ...string) func(*addonv1beta1.ManagedClusterAddOn) error {
	return func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		var have []string
		for _, reference := range addOn.Status.ConfigReferences {
			have = append(have, reference.Resource+" "+reference.DesiredConfig.Name)
			if want := s.hash(t, reference.ConfigGroupResource, reference.DesiredConfig.ConfigReferent); reference.DesiredConfig.SpecHash != want {
				return fmt.Errorf("%s has the hash %s, want %s", reference.DesiredConfig.Name, reference.DesiredConfig.SpecHash, want)
			}
		}
		if !slices.Equal(have, configs) {
			return fmt.Errorf("desired are %q, want %q", have, configs)
		}
		return nil
	}
}

func (s *addOnSite) hash(t *testing.T, kind addonv1beta1.ConfigGroupResource, name addonv1beta1.ConfigReferent) string {
	t.Helper()
	o := &unstructured.Unstructured{}
	switch kind.Resource {
	case "addondeploymentconfigs":
		o.SetAPIVersion("addon.open-cluster-management.io/v1alpha1")
		o.SetKind("AddOnDeploymentConfig")
	default:
		o.SetAPIVersion(kind.Group + "/v1")
		o.SetKind("ExampleConfig")
	}
	if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: name.Namespace, Name: name.Name}, o); err != nil {
		t.Fatal(err)
	}
	hash, err := addonconfig.Hash(o)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// deploy plays the manager of the add-on and the agent of the cluster: it writes the work of what is desired now, and the
// agent says how it goes.
func (s *addOnSite) deploy(t *testing.T, end string, applied metav1.ConditionStatus) {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.c.Get(ctx, s.key(end), addOn); err != nil {
			return err
		}
		meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{Type: fleet.ConditionManifestApplied, Status: metav1.ConditionTrue,
			Reason: fleet.ReasonAddOnManifestApplied})
		return s.c.Status().Update(ctx, addOn)
	})
	madeOf, err := addonconfig.Annotation(addOn.Status.ConfigReferences)
	if err != nil {
		t.Fatal(err)
	}
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: addOn.Namespace, Name: "addon-" + s.name + "-deploy-0"}}
	env.Eventually(t, func(ctx context.Context) error {
		err := s.c.Get(ctx, client.ObjectKeyFromObject(w), w)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		w.Labels = map[string]string{fleet.LabelAddOnName: s.name}
		w.Annotations = map[string]string{fleet.AnnotationConfigSpecHash: madeOf}
		w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "addon.open-cluster-management.io/v1alpha1", Kind: "ManagedClusterAddOn",
			Name: addOn.Name, UID: addOn.UID}}
		w.Spec.Workload.Manifests = raw(configMap("default", s.name, madeOf))
		if apierrors.IsNotFound(err) {
			return s.c.Create(ctx, w)
		}
		return s.c.Update(ctx, w)
	})
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.c.Get(ctx, client.ObjectKeyFromObject(w), w); err != nil {
			return err
		}
		for _, kind := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kind, Status: applied, Reason: "Test",
				ObservedGeneration: w.Generation})
		}
		return s.c.Status().Update(ctx, w)
	})
}

// awaitProgression waits until the progression of the only placement says so.
func (s *addOnSite) awaitProgression(t *testing.T, status metav1.ConditionStatus, text string) *addonv1beta1.ClusterManagementAddOn {
	t.Helper()
	entry := &addonv1beta1.ClusterManagementAddOn{}
	env.Eventually(t, func(ctx context.Context) error {
		*entry = addonv1beta1.ClusterManagementAddOn{}
		if err := s.c.Get(ctx, client.ObjectKey{Name: s.name}, entry); err != nil {
			return err
		}
		if len(entry.Status.InstallProgressions) != 1 {
			return fmt.Errorf("%d progressions: %+v", len(entry.Status.InstallProgressions), entry.Status)
		}
		cond := meta.FindStatusCondition(entry.Status.InstallProgressions[0].Conditions, fleet.ConditionProgressing)
		if cond == nil || cond.Status != status || !strings.Contains(cond.Message, text) {
			return fmt.Errorf("progression %+v, want %s, %q", cond, status, text)
		}
		return nil
	})
	return entry
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
	s.join(t, "aws1", nil, "aws")
	s.join(t, "aws2", nil, "aws")
	s.join(t, "gcp", nil, "gcp")
	s.apply(t, manual)
	s.apply(t, byInstallStrategy)
	s.awaitInstalled(t, "aws1", "aws2", "cluster1")

	entry := s.awaitProgression(t, metav1.ConditionFalse,
		"selected clusters 2. configured addons 2/2 completed with no errors, 0 failed 0 timeout.")
	for _, end := range []string{"aws1", "cluster1"} {
		s.await(t, end, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
			if len(addOn.OwnerReferences) != 1 || addOn.OwnerReferences[0].UID != entry.UID {
				return fmt.Errorf("%s is owned by %v", end, addOn.OwnerReferences)
			}
			return nil
		})
	}
	aws1 := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-aws1"}}
	const annotation = "addon.open-cluster-management.io/values"
	s.edit(t, aws1, func() { metav1.SetMetaDataAnnotation(&aws1.ObjectMeta, annotation, "{}") })
	s.await(t, "aws1", func(addOn *addonv1beta1.ManagedClusterAddOn) error { return wantAnnotation(addOn, annotation, "{}") })
	s.edit(t, aws1, func() { delete(aws1.Annotations, annotation) })
	s.await(t, "aws1", func(addOn *addonv1beta1.ManagedClusterAddOn) error { return wantAnnotation(addOn, annotation, "") })

	aws1.Status.ClusterClaims[0].Value = "gcp"
	env.Eventually(t, func(ctx context.Context) error { return s.claim(ctx, "aws1", "gcp") })
	env.Eventually(t, func(ctx context.Context) error { return s.claim(ctx, "gcp", "aws") })
	s.awaitInstalled(t, "aws2", "cluster1", "gcp")

	if err := s.c.Delete(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	s.awaitInstalled(t)
}

func wantAnnotation(o client.Object, key, value string) error {
	if have := o.GetAnnotations()[key]; have != value {
		return fmt.Errorf("annotation %s is %q, want %q", key, have, value)
	}
	return nil
}

func (s *addOnSite) claim(ctx context.Context, end, platform string) error {
	mc := &clusterv1.ManagedCluster{}
	if err := s.c.Get(ctx, client.ObjectKey{Name: s.name + "-" + end}, mc); err != nil {
		return err
	}
	mc.Status.ClusterClaims[0].Value = platform
	return s.c.Status().Update(ctx, mc)
}

// deploymentConfig is a configuration that sets a variable.
func deploymentConfig(name, value string) string {
	return fmt.Sprintf(`apiVersion: addon.open-cluster-management.io/v1alpha1
kind: AddOnDeploymentConfig
metadata:
  name: %s
  namespace: open-cluster-management
spec:
  customizedVariables:
  - name: VALUE
    value: "%s"
`, name, value)
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
	s.join(t, "aws", nil, "aws")
	s.apply(t, exampleDefinition("example.open-cluster-management.io"))
	for _, name := range []string{"default-", "", "cluster1-"} {
		s.apply(t, deploymentConfig(name+"deploy-config", name))
	}
	for _, name := range []string{"default-example-config", "example-config-1", "example-config-2", "cluster1-example-config"} {
		s.apply(t, exampleConfig(name))
	}
	s.apply(t, defaultConfigs)
	for _, cluster := range []string{"cluster1", "cluster2", "aws"} {
		s.apply(t, strings.ReplaceAll(manual, "cluster1", s.name+"-"+cluster))
	}
	for _, end := range []string{"cluster1", "cluster2", "aws"} {
		s.await(t, end, s.desires(t, "addondeploymentconfigs default-deploy-config", "exampleconfigs default-example-config"))
	}
	s.await(t, "cluster2", hasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionTrue, fleet.ReasonConfigurationsConfigured, ""))
	s.await(t, "cluster2", hasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonWaitingForManifestApplied, ""))

	s.apply(t, defaultConfigs+strategyConfigs)
	s.apply(t, strings.SplitN(byInstallStrategy, "\n---\n", 2)[1])
	s.apply(t, clusterConfigs)
	s.await(t, "aws", s.desires(t, "addondeploymentconfigs deploy-config", "exampleconfigs example-config-1",
		"exampleconfigs example-config-2"))
	s.await(t, "cluster1", s.desires(t, "addondeploymentconfigs cluster1-deploy-config", "exampleconfigs cluster1-example-config"))
	s.await(t, "cluster2", s.desires(t, "addondeploymentconfigs default-deploy-config", "exampleconfigs default-example-config"))

	s.deploy(t, "cluster1", metav1.ConditionTrue)
	done := s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonCompleted, ""))
	for _, reference := range done.Status.ConfigReferences {
		if !reflect.DeepEqual(reference.LastAppliedConfig, reference.DesiredConfig) || reference.LastObservedGeneration != 1 {
			t.Errorf("%+v", reference)
		}
	}
	s.apply(t, deploymentConfig("cluster1-deploy-config", "another"))
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionTrue, fleet.ReasonProgressing,
		"mca and work configs mismatch"))
	changed := s.await(t, "cluster1", s.desires(t, "addondeploymentconfigs cluster1-deploy-config", "exampleconfigs cluster1-example-config"))
	if first := changed.Status.ConfigReferences[0]; reflect.DeepEqual(first.LastAppliedConfig, first.DesiredConfig) ||
		first.LastAppliedConfig == nil || first.LastObservedGeneration != 2 {
		t.Errorf("%+v", first)
	}
	s.deploy(t, "cluster1", metav1.ConditionUnknown)
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionTrue, fleet.ReasonProgressing, "work is not ready"))
	s.deploy(t, "cluster1", metav1.ConditionTrue)
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonCompleted, ""))

	// What the add-on does not support has no effect, and is shown (A8).
	addOn := s.await(t, "cluster1", func(*addonv1beta1.ManagedClusterAddOn) error { return nil })
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.c.Get(ctx, s.key("cluster1"), addOn); err != nil {
			return err
		}
		addOn.Status.SupportedConfigs = []addonv1beta1.ConfigGroupResource{{Group: "addon.open-cluster-management.io",
			Resource: "addondeploymentconfigs"}}
		return s.c.Status().Update(ctx, addOn)
	})
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonConfigurationUnsupported,
		"Configuration with gvr example.open-cluster-management.io/exampleconfigs is not supported for this addon"))
	s.await(t, "cluster1", s.desires(t, "addondeploymentconfigs cluster1-deploy-config", "exampleconfigs default-example-config"))
}

// AM-06, AM-08: an add-on whose configuration does not exist, or is of a kind that the hub does not serve, says so, and goes
// on when it is there.
func TestAddOnConfigurationsThatAreMissing(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-missing", "cluster1")
	const group = "lifecycle-missing.example.com"
	s.apply(t, fmt.Sprintf(`apiVersion: addon.open-cluster-management.io/v1beta1
kind: ClusterManagementAddOn
metadata: {name: helloworld}
spec:
  defaultConfigs:
  - {group: %s, resource: exampleconfigs, namespace: open-cluster-management, name: one}
`, group))
	s.apply(t, manual)
	no := func(text string) func(*addonv1beta1.ManagedClusterAddOn) error {
		return hasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionFalse, fleet.ReasonConfigurationsNotConfigured, text)
	}
	s.await(t, "cluster1", no("the hub serves no exampleconfigs."+group+": install"))
	s.apply(t, exampleDefinition(group))
	s.await(t, "cluster1", no("exampleconfigs."+group+" "+s.name+"/one does not exist: create it"))
	s.apply(t, strings.ReplaceAll(exampleConfig("one"), "example.open-cluster-management.io", group))
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionTrue, fleet.ReasonConfigurationsConfigured, ""))
	s.await(t, "cluster1", s.desires(t, "exampleconfigs one"))
}

// AM-03, AM-07: an add-on is announced its configurations before anything else is said of it, whether they exist or not, and
// whichever client created it: a manager that finds no reference deploys with defaults.
func TestAddOnConfigurationsAreAnnounced(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-announced", "manual")
	ends := []string{"c1", "c2", "manual"}
	taken := map[string]string{"taken": "yes"}
	for _, end := range ends[:2] {
		s.join(t, end, taken, "")
	}
	said := map[string]watch.Interface{}
	for _, end := range ends {
		w, err := s.c.Watch(t.Context(), &addonv1beta1.ManagedClusterAddOnList{}, client.InNamespace(s.name+"-"+end))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		said[end] = w
	}
	entry := entryOf(s.name)
	entry.Spec.DefaultConfigs = []addonv1beta1.AddOnConfig{{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: addonv1beta1.GroupVersion.Group, Resource: "addondeploymentconfigs"},
		ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: s.name, Name: "deploy-config"},
	}}
	entry.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: addonv1beta1.InstallStrategyPlacements,
		Placements: []addonv1beta1.PlacementStrategy{{
			PlacementRef: addonv1beta1.PlacementRef{Namespace: s.name, Name: "all"},
		}}}
	s.place(t, "all", clusterv1beta1.PlacementSpec{Predicates: []clusterv1beta1.ClusterPredicate{{
		RequiredClusterSelector: clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchLabels: taken}},
	}}})
	create(t, s.c, entry, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: s.name + "-manual", Name: s.name}})
	for _, end := range ends {
		first := firstStatus(t, said[end])
		if len(first.ConfigReferences) != 1 || first.ConfigReferences[0].DesiredConfig == nil ||
			first.ConfigReferences[0].DesiredConfig.Name != "deploy-config" ||
			first.ConfigReferences[0].DesiredConfig.SpecHash != "" || first.ConfigReferences[0].LastObservedGeneration != 0 {
			t.Errorf("%s says first: %+v", end, first)
		}
		s.await(t, end, hasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionFalse, fleet.ReasonConfigurationsNotConfigured, s.name+
			"/deploy-config does not exist: create it"))
	}
	s.apply(t, deploymentConfig("deploy-config", "one"))
	for _, end := range ends {
		s.await(t, end, s.desires(t, "addondeploymentconfigs deploy-config"))
		s.await(t, end, hasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionTrue, fleet.ReasonConfigurationsConfigured, ""))
	}
}

// AM-07, AF-11: a manager that is faster than the hub is told so by a conflict, on which it tries again.
func TestAddOnIsConfiguredBeforeItIsDeployed(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-order", "c1")
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.key("c1").Namespace, Name: s.name, Annotations: map[string]string{fleet.AnnotationInstalledBy: fleet.InstalledByStrategy},
	}}
	create(t, s.c, addOn)
	patch := func(change func(*addonv1beta1.ManagedClusterAddOnStatus)) error {
		if err := s.c.Get(t.Context(), s.key("c1"), addOn); err != nil {
			t.Fatal(err)
		}
		before := addOn.DeepCopy()
		change(&addOn.Status)
		return s.c.Status().Patch(t.Context(), addOn, client.MergeFrom(before))
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
			ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: s.name, Name: "one"},
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

// canaries is the example of the documentation of rollout strategies, with a shorter soak.
const canaries = `apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ClusterManagementAddOn
metadata:
  name: helloworld
  annotations:
    addon.open-cluster-management.io/lifecycle: "addon-manager"
spec:
  addOnMeta:
    displayName: helloworld
  supportedConfigs:
  - group: addon.open-cluster-management.io
    resource: addondeploymentconfigs
  installStrategy:
    type: Placements
    placements:
    - name: placement-aws
      namespace: default
      configs:
      - group: addon.open-cluster-management.io
        resource: addondeploymentconfigs
        name: deploy-config
        namespace: open-cluster-management
      rolloutStrategy:
        type: Progressive
        progressive:
          mandatoryDecisionGroups:
          - groupName: "prod-canary-west"
          - groupName: "prod-canary-east"
          maxConcurrency: 25%
          minSuccessTime: 2s
          progressDeadline: 10m
          maxFailures: 2
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata:
  name: placement-aws
  namespace: default
spec:
  decisionStrategy:
    groupStrategy:
      decisionGroups:
      - groupName: prod-canary-west
        groupClusterSelector: {labelSelector: {matchLabels: {canary: west}}}
      - groupName: prod-canary-east
        groupClusterSelector: {labelSelector: {matchLabels: {canary: east}}}
`

// AM-10, AM-20, AM-21: a change of the configuration reaches the canary groups in their order, each cluster soaks, then the
// others follow a quarter at a time.
func TestAddOnRollout(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-rollout", "c1", "c2", "c3", "c4")
	s.join(t, "west", map[string]string{"canary": "west"}, "")
	s.join(t, "east", map[string]string{"canary": "east"}, "")
	all := []string{"c1", "c2", "c3", "c4", "east", "west"}
	s.apply(t, deploymentConfig("deploy-config", "one"))
	s.apply(t, canaries)
	s.awaitInstalled(t, all...)
	for _, turn := range []string{"west", "east", "c1", "c2", "c3", "c4"} {
		s.turnOf(t, turn, all)
	}
	entry := s.awaitProgression(t, metav1.ConditionFalse,
		"selected clusters 6. configured addons 6/6 completed with no errors, 0 failed 0 timeout.")
	one := entry.Status.InstallProgressions[0].ConfigReferences[0]
	if one.DesiredConfig.SpecHash == "" || !reflect.DeepEqual(one.LastAppliedConfig, one.DesiredConfig) ||
		!reflect.DeepEqual(one.LastKnownGoodConfig, one.DesiredConfig) {
		t.Errorf("%+v", one)
	}

	s.apply(t, deploymentConfig("deploy-config", "two"))
	entry = s.awaitProgression(t, metav1.ConditionTrue, "selected clusters 6. configured addons 1/6 progressing..., 0 failed 0 timeout.")
	if two := entry.Status.InstallProgressions[0].ConfigReferences[0]; two.DesiredConfig.SpecHash == one.DesiredConfig.SpecHash ||
		*two.LastKnownGoodConfig != *one.DesiredConfig {
		t.Errorf("%+v after %+v", two, one)
	}
	s.turnOf(t, "west", all)
	s.awaitHash(t, "east")
	s.deploy(t, "east", metav1.ConditionFalse)
	s.await(t, "east", hasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonFailed, "could not be applied"))
	s.awaitProgression(t, metav1.ConditionTrue, "configured addons 1/6 progressing..., 1 failed 0 timeout. stopped: 1 failure in")
	s.deploy(t, "east", metav1.ConditionTrue)
	s.turnOf(t, "c1", all)
	s.awaitHash(t, "c2")
}

// awaitHash waits until a cluster is to have the configuration as it is now.
func (s *addOnSite) awaitHash(t *testing.T, end string) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	return s.await(t, end, s.desires(t, "addondeploymentconfigs deploy-config"))
}

// pending tells whether an add-on has still to be given its configurations.
func pending(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return len(addOn.Status.ConfigReferences) == 0 || slices.ContainsFunc(addOn.Status.ConfigReferences, addonconfig.IsPending)
}

// turnOf waits for the turn of a cluster, sees that it is the only one under way, and has it succeed.
func (s *addOnSite) turnOf(t *testing.T, end string, all []string) {
	t.Helper()
	turn := s.awaitHash(t, end)
	for _, other := range all {
		addOn := s.await(t, other, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
			if !pending(addOn) {
				return nil
			}
			return hasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionFalse, fleet.ReasonConfigurationsNotConfigured,
				"Waiting for the rollout: ")(addOn)
		})
		if pending(addOn) {
			continue
		}
		reference := addOn.Status.ConfigReferences[0]
		underWay := !reflect.DeepEqual(reference.DesiredConfig, reference.LastAppliedConfig)
		if underWay && other != end {
			t.Errorf("in the turn of %s, %s is under way: %+v", end, other, reference)
		}
	}
	s.deploy(t, end, metav1.ConditionTrue)
	s.await(t, end, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if reference := addOn.Status.ConfigReferences[0]; !reflect.DeepEqual(reference.LastAppliedConfig,
			turn.Status.ConfigReferences[0].DesiredConfig) {
			return fmt.Errorf("applied is %+v", reference.LastAppliedConfig)
		}
		return nil
	})
}

// RG-29, RG-30: labels of the cluster tell how its add-ons are doing; those of a lost cluster say that they are lost, too.
func TestAddOnHealthOfClusters(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-health", "cluster1")
	s.apply(t, strings.SplitN(byInstallStrategy, "\n---\n", 2)[0])
	s.apply(t, manual)
	label := "feature.open-cluster-management.io/addon-" + s.name
	mc := &clusterv1.ManagedCluster{}
	awaitLabel := func(want string) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			if err := s.c.Get(ctx, client.ObjectKey{Name: s.name + "-cluster1"}, mc); err != nil {
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
			if err := s.c.Get(ctx, s.key("cluster1"), addOn); err != nil {
				return err
			}
			meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{Type: fleet.ConditionAvailable, Status: status, Reason: "Test"})
			return s.c.Status().Update(ctx, addOn)
		})
	}
	awaitLabel("unreachable")
	say(metav1.ConditionFalse)
	awaitLabel("unhealthy")
	say(metav1.ConditionTrue)
	awaitLabel("available")

	env.Eventually(t, func(ctx context.Context) error {
		if err := s.c.Get(ctx, client.ObjectKeyFromObject(mc), mc); err != nil {
			return err
		}
		meta.RemoveStatusCondition(&mc.Status.Conditions, fleet.ConditionClusterAvailable)
		meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{
			Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionUnknown, Reason: fleet.ReasonManagedClusterLeaseUpdateStopped,
			Message:            "Registration agent stopped updating its lease.",
			LastTransitionTime: metav1.NewTime(time.Now().Add(time.Second)), // the times on the wire are of whole seconds
		})
		return s.c.Status().Update(ctx, mc)
	})
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionAvailable, metav1.ConditionUnknown, fleet.ReasonManagedClusterLeaseUpdateStopped,
		"Registration agent stopped updating its lease."))
	awaitLabel("unreachable")

	addOn := s.await(t, "cluster1", func(*addonv1beta1.ManagedClusterAddOn) error { return nil })
	if err := s.c.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	awaitLabel("")
}

// AM-04: of an add-on that manages itself, the hub maintains the default configurations alone.
func TestAddOnThatManagesItself(t *testing.T) {
	t.Parallel()
	s := newAddOnSite(t, "lifecycle-self", "cluster1", "cluster2")
	s.apply(t, deploymentConfig("default-deploy-config", "one"))
	s.apply(t, deploymentConfig("deploy-config", "one"))
	s.apply(t, manual)
	itself := strings.NewReplacer(`"addon-manager"`, "self", "\n  supportedConfigs:\n", `
  supportedConfigs:
  - defaultConfig: {name: default-deploy-config, namespace: open-cluster-management}
    group: addon.open-cluster-management.io
    resource: addondeploymentconfigs
`, "  - group: addon.open-cluster-management.io\n    resource: addondeploymentconfigs\n  installStrategy",
		"  installStrategy").Replace(canaries)
	s.apply(t, itself)
	env.Eventually(t, func(ctx context.Context) error {
		entry := &addonv1beta1.ClusterManagementAddOn{}
		if err := s.c.Get(ctx, client.ObjectKey{Name: s.name}, entry); err != nil {
			return err
		}
		if references := entry.Status.DefaultConfigReferences; len(references) != 1 || references[0].DesiredConfig.SpecHash == "" ||
			len(entry.Status.InstallProgressions) != 0 {
			return fmt.Errorf("%+v", entry.Status)
		}
		return nil
	})
	s.awaitInstalled(t, "cluster1")
	addOn := s.await(t, "cluster1", func(*addonv1beta1.ManagedClusterAddOn) error { return nil })
	if len(addOn.Status.ConfigReferences) != 0 || len(addOn.Status.Conditions) != 0 {
		t.Errorf("%+v", addOn.Status)
	}
}

// testAddOnsExisting installs and configures an add-on on a hub in an existing cluster, where a scheduler that is not ours
// decides.
func testAddOnsExisting(t *testing.T, existing *env.Server) {
	s := newAddOnSiteOn(t, existing, "lifecycle-existing", "cluster1", "cluster2")
	s.apply(t, deploymentConfig("deploy-config", "one"))
	s.apply(t, strings.ReplaceAll(canaries, "placement-aws", s.name+"-of-another"))
	decide(t, s.c, s.name+"-of-another", s.name+"-cluster1")
	entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	s.edit(t, entry, func() { entry.Spec.InstallStrategy.Placements[0].Namespace = s.name + "-of-another" })
	s.awaitInstalled(t, "cluster1")
	s.awaitHash(t, "cluster1")
	s.deploy(t, "cluster1", metav1.ConditionTrue)
	s.awaitProgression(t, metav1.ConditionFalse, "selected clusters 1. configured addons 1/1 completed with no errors")
	s.await(t, "cluster1", hasAddOnCondition(fleet.ConditionProgressing, metav1.ConditionFalse, fleet.ReasonCompleted, ""))
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := s.c.Get(ctx, client.ObjectKey{Name: s.name + "-cluster1"}, mc); err != nil {
			return err
		}
		if _, found := mc.Labels[fleet.AddOnFeatureLabel(s.name)]; !found {
			return fmt.Errorf("no label of the add-on in %v", mc.Labels)
		}
		return nil
	})
}
