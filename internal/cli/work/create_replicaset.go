package work

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/manifests"
	"github.com/capstan-io/capstan/internal/cli/placements"
)

// replicaSet is what delivers the work for as long as it exists.
func (d *delivery) replicaSet() *workv1alpha1.ManifestWorkReplicaSet {
	return &workv1alpha1.ManifestWorkReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: workv1alpha1.GroupVersion.String(), Kind: "ManifestWorkReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.placement.Namespace, Name: d.name},
		Spec: workv1alpha1.ManifestWorkReplicaSetSpec{
			ManifestWorkTemplate: workv1.ManifestWorkSpec{Workload: d.workload},
			PlacementRefs:        []workv1alpha1.LocalPlacementReference{{Name: d.placement.Name}},
		},
	}
}

// createReplicaSet creates the set, or changes the manifests and the placement of the one that is there.
func (d *delivery) createReplicaSet(ctx context.Context, hub *hubapi.Hub) error {
	if _, err := placements.Get(ctx, hub, d.placement.Namespace, d.placement.Name); err != nil { // the API would take one that is misspelt
		return err
	}
	desired := d.replicaSet()
	live, err := readReplicaSet(ctx, hub, desired.Namespace, desired.Name)
	switch {
	case apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub):
		if err := createReplicaSet(ctx, hub, desired); err != nil {
			return err
		}
		d.Say("create manifestworkreplicaset %s in namespace %s", desired.Name, desired.Namespace)
		return nil
	case err != nil:
		return err
	case manifests.SameWorkload(live.Spec.ManifestWorkTemplate.Workload, d.workload) && refersTo(live, d.placement.Name):
		d.Say("manifestworkreplicaset %s in namespace %s already exists, with these manifests", live.Name, live.Namespace)
		return nil
	case !d.overwrite:
		return fmt.Errorf("ManifestWorkReplicaSet %s in namespace %s already exists, with other manifests or placements: replace them with --overwrite, or "+
			"choose another name",
			live.Name, live.Namespace)
	}
	err = updateReplicaSet(ctx, hub, live.Namespace, live.Name, func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.ManifestWorkTemplate.Workload = d.workload
		if !refersTo(set, d.placement.Name) { // else its rollout strategy stays
			set.Spec.PlacementRefs = desired.Spec.PlacementRefs
		}
	})
	if err != nil {
		return err
	}
	d.Say("update manifestworkreplicaset %s in namespace %s", live.Name, live.Namespace)
	return nil
}

// refersTo reports whether a set is for a placement, perhaps among others.
func refersTo(set *workv1alpha1.ManifestWorkReplicaSet, placement string) bool {
	return slices.ContainsFunc(set.Spec.PlacementRefs, func(r workv1alpha1.LocalPlacementReference) bool { return r.Name == placement })
}

var manifestWorkReplicaSets = workv1alpha1.GroupVersion.WithResource("manifestworkreplicasets")

// readReplicaSet reads one ManifestWorkReplicaSet.
func readReplicaSet(ctx context.Context, hub *hubapi.Hub, namespace, name string) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	err := hub.Client(manifestWorkReplicaSets).Namespace(namespace).Get(ctx, name, set)
	return set, hub.Explain("read ManifestWorkReplicaSet "+name+" of namespace "+namespace, err)
}

// createReplicaSet creates a ManifestWorkReplicaSet.
func createReplicaSet(ctx context.Context, hub *hubapi.Hub, set *workv1alpha1.ManifestWorkReplicaSet) error {
	err := hub.Client(manifestWorkReplicaSets).Namespace(set.Namespace).Create(ctx, set, nil)
	return hub.Explain("create ManifestWorkReplicaSet "+set.Name+" in namespace "+set.Namespace, err)
}

// updateReplicaSet changes a ManifestWorkReplicaSet and leaves the rest of it as it is.
func updateReplicaSet(ctx context.Context, hub *hubapi.Hub, namespace, name string,
	change func(*workv1alpha1.ManifestWorkReplicaSet)) error {
	sets := hub.Client(manifestWorkReplicaSets).Namespace(namespace)
	err := hubapi.Change(ctx, sets, name, func(set *workv1alpha1.ManifestWorkReplicaSet) (bool, error) {
		change(set)
		return true, nil
	})
	return hub.Explain("update ManifestWorkReplicaSet "+name+" in namespace "+namespace, err)
}
