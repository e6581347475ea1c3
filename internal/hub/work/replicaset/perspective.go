package replicaset

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/fleet"
	"github.com/capstan-io/capstan/internal/manifest/override"
)

// readOverrides prepares what makes the works of a set differ. Few sets have any; the others share their template.
func (c *Controller) readOverrides(ctx context.Context, s *situation) error {
	text := s.set.Annotations[fleet.AnnotationOverrides]
	if text == "" {
		return nil
	}
	overrides, errs := override.Parse(field.NewPath("metadata", "annotations").Key(fleet.AnnotationOverrides), text)
	s.overrides = &variants{overrides: overrides, broken: errs.ToAggregate(), clusters: map[string]override.Cluster{}, made: map[string]*workv1.ManifestWorkSpec{}}
	list := &clusterv1.ManagedClusterList{}
	if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the clusters for the overrides of ManifestWorkReplicaSet %s/%s: %w", s.set.Namespace, s.set.Name, err)
	}
	for i := range list.Items {
		cluster := override.Cluster{Name: list.Items[i].Name, Labels: list.Items[i].Labels, Claims: map[string]string{}}
		for _, claim := range list.Items[i].Status.ClusterClaims {
			cluster.Claims[claim.Name] = claim.Value
		}
		s.overrides.clusters[cluster.Name] = cluster
	}
	return nil
}

// variants are the specs of the works of a set with overrides.
type variants struct {
	overrides []override.Override
	broken    error
	clusters  map[string]override.Cluster
	made      map[string]*workv1.ManifestWorkSpec
}

// specFor is what a cluster is to have when its turn comes. Overrides change manifests alone: above all not the executor,
// which nobody would be asked about then.
func (s *situation) specFor(cluster string) (*workv1.ManifestWorkSpec, error) {
	v := s.overrides
	if v == nil {
		return s.template, nil
	}
	if v.broken != nil {
		return nil, v.broken
	}
	if spec := v.made[cluster]; spec != nil {
		return spec, nil
	}
	known, found := v.clusters[cluster]
	if !found {
		known.Name = cluster
	}
	spec := *s.template
	var err error
	if spec.Workload.Manifests, err = override.Apply(v.overrides, s.template.Workload.Manifests, known); err != nil {
		return nil, err
	}
	v.made[cluster] = &spec
	return &spec, nil
}

// isCurrent tells whether a work has the template that the set has now, whatever is rolled out.
func (s *situation) isCurrent(w *work) bool {
	spec, err := s.specFor(w.Namespace)
	return err == nil && s.template == &s.set.Spec.ManifestWorkTemplate && sameSpec(&w.Spec, spec)
}
