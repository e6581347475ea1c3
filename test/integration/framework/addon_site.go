package framework

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	addonconfig "github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// AddOnSite is a site with accepted clusters, and an add-on of the same name. The test is the manager of the add-on, and
// plays the agents.
type AddOnSite struct{ *Site }

// NewAddOnSiteOn makes a site on a hub, with an add-on of its name.
func NewAddOnSiteOn(t *testing.T, on *env.Server, name string, clusters ...string) *AddOnSite {
	t.Helper()
	s := &AddOnSite{NewSiteOn(t, on, name)}
	for _, end := range clusters {
		s.Join(t, end, nil, "")
	}
	return s
}

// Join makes a cluster that is accepted and available, with labels and the claim of its platform.
func (s *AddOnSite) Join(t *testing.T, end string, labels map[string]string, platform string) {
	t.Helper()
	mc := s.Add(t, end, labels)
	s.Edit(t, mc, func() { mc.Spec.HubAcceptsClient = true })
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, client.ObjectKeyFromObject(mc), mc); err != nil {
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
		return s.C.Status().Update(ctx, mc)
	})
}

// Edit changes an object, whichever other writers there are.
func (s *AddOnSite) Edit(t *testing.T, o client.Object, change func()) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return s.C.Update(ctx, o)
	})
}

// Apply creates or replaces what YAML of the documentation says, with the add-on, the namespace default and cluster1 being those of the
// site.
func (s *AddOnSite) Apply(t *testing.T, documents string) {
	t.Helper()
	documents = strings.NewReplacer("helloworld", s.Name, "namespace: default", "namespace: "+s.Name,
		"namespace: open-cluster-management", "namespace: "+s.Name, "namespace: cluster1", "namespace: "+s.Name+"-cluster1").Replace(documents)
	for document := range strings.SplitSeq(documents, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, func(ctx context.Context) error {
			there := o.DeepCopy()
			err := s.C.Get(ctx, client.ObjectKeyFromObject(o), there)
			if apierrors.IsNotFound(err) {
				return s.C.Create(ctx, o.DeepCopy())
			}
			if err != nil {
				return err
			}
			there.Object["spec"] = o.Object["spec"]
			return s.C.Update(ctx, there)
		})
	}
}

// Key is the add-on on a cluster of the site.
func (s *AddOnSite) Key(end string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.Name + "-" + end, Name: s.Name}
}

// AwaitInstalled waits until the add-on is installed on these clusters alone.
func (s *AddOnSite) AwaitInstalled(t *testing.T, ends ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		list := &addonv1beta1.ManagedClusterAddOnList{}
		if err := s.C.List(ctx, list); err != nil {
			return err
		}
		have := []string{}
		for _, addOn := range list.Items {
			if addOn.Name == s.Name && addOn.DeletionTimestamp.IsZero() {
				have = append(have, strings.TrimPrefix(addOn.Namespace, s.Name+"-"))
			}
		}
		slices.Sort(have)
		if !slices.Equal(have, ends) {
			return fmt.Errorf("installed on %v, want %v", have, ends)
		}
		return nil
	})
}

// Await waits until a check of the add-on on a cluster finds nothing wrong.
func (s *AddOnSite) Await(t *testing.T, end string, check func(*addonv1beta1.ManagedClusterAddOn) error) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	env.Eventually(t, func(ctx context.Context) error {
		*addOn = addonv1beta1.ManagedClusterAddOn{}
		if err := s.C.Get(ctx, s.Key(end), addOn); err != nil {
			return err
		}
		if err := check(addOn); err != nil {
			return fmt.Errorf("%w; status: %+v", err, addOn.Status)
		}
		return nil
	})
	return addOn
}

// HasAddOnCondition wants a condition with the status and reason, and the text in its message.
func HasAddOnCondition(kind string, status metav1.ConditionStatus, reason, text string) func(*addonv1beta1.ManagedClusterAddOn) error {
	return func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		cond := meta.FindStatusCondition(addOn.Status.Conditions, kind)
		if cond == nil || cond.Status != status || cond.Reason != reason || !strings.Contains(cond.Message, text) {
			return fmt.Errorf("%s is %+v, want %s, %s, %q", kind, cond, status, reason, text)
		}
		return nil
	}
}

// Desires wants the configurations, by "resource name", in this order and with the hashes that the objects have.
func (s *AddOnSite) Desires(t *testing.T, configs ...string) func(*addonv1beta1.ManagedClusterAddOn) error {
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

func (s *AddOnSite) hash(t *testing.T, kind addonv1beta1.ConfigGroupResource, name addonv1beta1.ConfigReferent) string {
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
	if err := s.C.Get(t.Context(), client.ObjectKey{Namespace: name.Namespace, Name: name.Name}, o); err != nil {
		t.Fatal(err)
	}
	hash, err := addonconfig.Hash(o)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// Deploy plays the manager of the add-on and the agent of the cluster: it writes the work of what is desired now, and the
// agent says how it goes.
func (s *AddOnSite) Deploy(t *testing.T, end string, applied metav1.ConditionStatus) {
	t.Helper()
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, s.Key(end), addOn); err != nil {
			return err
		}
		meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{Type: fleet.ConditionManifestApplied, Status: metav1.ConditionTrue,
			Reason: fleet.ReasonAddOnManifestApplied})
		return s.C.Status().Update(ctx, addOn)
	})
	madeOf, err := addonconfig.Annotation(addOn.Status.ConfigReferences)
	if err != nil {
		t.Fatal(err)
	}
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: addOn.Namespace, Name: "addon-" + s.Name + "-deploy-0"}}
	env.Eventually(t, func(ctx context.Context) error {
		err := s.C.Get(ctx, client.ObjectKeyFromObject(w), w)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		w.Labels = map[string]string{fleet.LabelAddOnName: s.Name}
		w.Annotations = map[string]string{fleet.AnnotationConfigSpecHash: madeOf}
		w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "addon.open-cluster-management.io/v1alpha1", Kind: "ManagedClusterAddOn",
			Name: addOn.Name, UID: addOn.UID}}
		w.Spec.Workload.Manifests = RawManifests(ConfigMap("default", s.Name, madeOf))
		if apierrors.IsNotFound(err) {
			return s.C.Create(ctx, w)
		}
		return s.C.Update(ctx, w)
	})
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, client.ObjectKeyFromObject(w), w); err != nil {
			return err
		}
		for _, kind := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kind, Status: applied, Reason: "Test",
				ObservedGeneration: w.Generation})
		}
		return s.C.Status().Update(ctx, w)
	})
}

// AwaitProgression waits until the progression of the only placement says so.
func (s *AddOnSite) AwaitProgression(t *testing.T, status metav1.ConditionStatus, text string) *addonv1beta1.ClusterManagementAddOn {
	t.Helper()
	entry := &addonv1beta1.ClusterManagementAddOn{}
	env.Eventually(t, func(ctx context.Context) error {
		*entry = addonv1beta1.ClusterManagementAddOn{}
		if err := s.C.Get(ctx, client.ObjectKey{Name: s.Name}, entry); err != nil {
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

// Claim has a cluster claim its platform.
func (s *AddOnSite) Claim(ctx context.Context, end, platform string) error {
	mc := &clusterv1.ManagedCluster{}
	if err := s.C.Get(ctx, client.ObjectKey{Name: s.Name + "-" + end}, mc); err != nil {
		return err
	}
	mc.Status.ClusterClaims[0].Value = platform
	return s.C.Status().Update(ctx, mc)
}

// DeploymentConfig is a configuration that sets a variable.
func DeploymentConfig(name, value string) string {
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

// Canaries is the example of the documentation of rollout strategies, with a shorter soak.
const Canaries = `apiVersion: addon.open-cluster-management.io/v1alpha1
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

// AwaitHash waits until a cluster is to have the configuration as it is now.
func (s *AddOnSite) AwaitHash(t *testing.T, end string) *addonv1beta1.ManagedClusterAddOn {
	t.Helper()
	return s.Await(t, end, s.Desires(t, "addondeploymentconfigs deploy-config"))
}

// pending tells whether an add-on has still to be given its configurations.
func pending(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return len(addOn.Status.ConfigReferences) == 0 || slices.ContainsFunc(addOn.Status.ConfigReferences, addonconfig.IsPending)
}

// TurnOf waits for the turn of a cluster, sees that it is the only one under way, and has it succeed.
func (s *AddOnSite) TurnOf(t *testing.T, end string, all []string) {
	t.Helper()
	turn := s.AwaitHash(t, end)
	for _, other := range all {
		addOn := s.Await(t, other, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
			if !pending(addOn) {
				return nil
			}
			return HasAddOnCondition(fleet.ConditionConfigured, metav1.ConditionFalse, fleet.ReasonConfigurationsNotConfigured,
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
	s.Deploy(t, end, metav1.ConditionTrue)
	s.Await(t, end, func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		if reference := addOn.Status.ConfigReferences[0]; !reflect.DeepEqual(reference.LastAppliedConfig,
			turn.Status.ConfigReferences[0].DesiredConfig) {
			return fmt.Errorf("applied is %+v", reference.LastAppliedConfig)
		}
		return nil
	})
}

// HasWork tells whether the hub has brought the value to a cluster. It fails if there is no work at all.
func (s *AddOnSite) HasWork(ctx context.Context, end, addOn, value string) (bool, error) {
	w := &workv1.ManifestWork{}
	if err := s.C.Get(ctx, client.ObjectKey{Namespace: s.Name + "-" + end, Name: "addon-" + addOn + "-deploy-0"}, w); err != nil {
		return false, err
	}
	return strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), value), nil
}

// AwaitWork waits until the work of the add-on on a cluster has the value.
func (s *AddOnSite) AwaitWork(t *testing.T, end, addOn, value string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		has, err := s.HasWork(ctx, end, addOn, value)
		if err == nil && !has {
			return fmt.Errorf("%s has not come to %s", value, end)
		}
		return err
	})
}

// Finish plays the agent of a cluster: the work of the add-on is done.
func (s *AddOnSite) Finish(t *testing.T, end, addOn string) {
	t.Helper()
	w := &workv1.ManifestWork{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, client.ObjectKey{Namespace: s.Name + "-" + end, Name: "addon-" + addOn + "-deploy-0"}, w); err != nil {
			return err
		}
		for _, kind := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test",
				ObservedGeneration: w.Generation})
		}
		return s.C.Status().Update(ctx, w)
	})
}
