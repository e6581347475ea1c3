package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	addonconfig "github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// acknowledge remembers a ManifestWorkReplicaSet as the hub says that it has stored it for a user.
func (f *fleetOfTest) acknowledge(o *unstructured.Unstructured) error {
	if o.GetKind() != "ManifestWorkReplicaSet" {
		return nil
	}
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	f.acknowledged[client.ObjectKeyFromObject(o)] = set
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set)
}

// checkDelivery fails if a cluster that is selected has not what the hub has acknowledged of a set, and no condition of that says why.
func (f *fleetOfTest) checkDelivery(ctx context.Context) error {
	for key, set := range f.acknowledged {
		now := &workv1alpha1.ManifestWorkReplicaSet{}
		if err := f.hub.Get(ctx, key, now); err != nil {
			return fmt.Errorf("read the ManifestWorkReplicaSet %s that the hub has acknowledged: %w", key, err)
		}
		if slices.ContainsFunc(now.Status.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionFalse }) {
			continue
		}
		works, decisions := &workv1.ManifestWorkList{}, &clusterv1beta1.PlacementDecisionList{}
		if err := f.hub.List(ctx, works, client.MatchingLabels{
			fleet.LabelManifestWorkReplicaSet: fleet.ManifestWorkReplicaSetKey(key.Namespace, key.Name)}); err != nil {
			return err
		}
		if err := f.hub.List(ctx, decisions, client.InNamespace(key.Namespace),
			client.MatchingLabels{fleet.LabelPlacement: set.Spec.PlacementRefs[0].Name}); err != nil {
			return err
		}
		for _, cluster := range rollout.Selected(decisions.Items) {
			if !hasWorkload(works.Items, cluster.Name, set.Spec.ManifestWorkTemplate.Workload) {
				return fmt.Errorf("cluster %s has not what the hub has acknowledged of ManifestWorkReplicaSet %s, and no condition of that is False",
					cluster.Name, key)
			}
		}
	}
	return nil
}

// checkRolledOut fails if a set of users is not on all of its clusters, or nothing of it was compared with its maxConcurrency.
func checkRolledOut(ctx context.Context, f *fleetOfTest) error {
	if len(f.acknowledged) == 0 {
		return errors.New("the hub has acknowledged no ManifestWorkReplicaSet")
	}
	for key := range f.acknowledged {
		set := &workv1alpha1.ManifestWorkReplicaSet{}
		if err := f.hub.Get(ctx, key, set); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(set.Status.Conditions, fleet.ConditionPlacementRolledOut) ||
			slices.ContainsFunc(set.Status.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionFalse }) {
			return fmt.Errorf("ManifestWorkReplicaSet %s has the conditions %+v, want PlacementRolledOut True, and none False", key,
				set.Status.Conditions)
		}
		if err := f.checkCompared(rolloutOf(fleet.ManifestWorkReplicaSetKey(key.Namespace, key.Name))); err != nil {
			return err
		}
	}
	return nil
}

// checkApplied fails if the add-on greeter is not applied as it is configured on each cluster, or nothing of it was compared with its
// maxConcurrency.
func checkApplied(ctx context.Context, f *fleetOfTest) error {
	for _, cluster := range []string{"c1", "c2", "c3"} {
		addOn := &addonv1beta1.ManagedClusterAddOn{}
		if err := f.hub.Get(ctx, client.ObjectKey{Namespace: cluster, Name: addOnOfTest}, addOn); err != nil {
			return err
		}
		references := addOn.Status.ConfigReferences
		if len(references) == 0 || slices.ContainsFunc(references, addonconfig.IsPending) || !progress.IsApplied(addOn) {
			return fmt.Errorf("ManagedClusterAddOn %s/%s has the configurations %+v, want some, each applied as it is desired", cluster, addOnOfTest,
				references)
		}
	}
	return f.checkCompared(rolloutOfAddOn)
}

// checkCompared fails if no work of a rollout was finished in the step: nothing has been compared with the maxConcurrency.
func (f *fleetOfTest) checkCompared(what string) error {
	if f.compared[what] == 0 {
		return fmt.Errorf("no agent has finished a work of %s: nothing is known of its rollout", what)
	}
	f.compared[what] = 0
	return nil
}

// hasWorkload tells whether the agent of a cluster has reported of one of some works that it is applied, and that has the workload.
func hasWorkload(works []workv1.ManifestWork, cluster string, workload workv1.ManifestsTemplate) bool {
	return slices.ContainsFunc(works, func(w workv1.ManifestWork) bool {
		return w.Namespace == cluster && w.DeletionTimestamp == nil && len(unfinished([]workv1.ManifestWork{w})) == 0 &&
			equality.Semantic.DeepEqual(w.Spec.Workload, workload)
	})
}
