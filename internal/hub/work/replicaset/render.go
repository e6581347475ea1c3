package replicaset

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest/override"
)

// readOverrides prepares what makes the works of a set differ. Few sets have any; the others share their template.
func (c *Controller) readOverrides(ctx context.Context, s *situation) error {
	text := s.set.Annotations[fleet.AnnotationOverrides]
	if text == "" {
		return nil
	}
	var err error
	if s.overrides, err = newVariants(text, s.template, s.pass); err != nil {
		return err
	}
	list := &clusterv1.ManagedClusterList{}
	if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the clusters for the overrides of ManifestWorkReplicaSet %s/%s: %w", s.set.Namespace, s.set.Name, err)
	}
	for i := range list.Items {
		s.overrides.add(&list.Items[i])
	}
	return nil
}

// mostKept is how many bytes of manifests a pass keeps, so as not to render them again for a cluster that gets them, or for another one
// that has the same values.
const mostKept = 16 << 20

// variants are the specs of the works of a set with overrides.
type variants struct {
	renderer *override.Renderer
	template *workv1.ManifestWorkSpec
	broken   error
	clusters map[string]override.Cluster
	pass     *pass

	mu   sync.Mutex
	kept map[variantKey]*workv1.ManifestWorkSpec
	size int // bytes of the manifests of those that are kept
	// failed are the variants that cannot be, and nil for those that can.
	failed map[variantKey]error
}

type variantKey [sha256.Size]byte

func newVariants(text string, template *workv1.ManifestWorkSpec, pass *pass) (*variants, error) {
	v := &variants{
		template: template, clusters: map[string]override.Cluster{}, pass: pass,
		kept: map[variantKey]*workv1.ManifestWorkSpec{}, failed: map[variantKey]error{},
	}
	if err := pass.pay(len(text) >> 3); err != nil {
		return nil, err
	}
	overrides, errs := override.Parse(field.NewPath("metadata", "annotations").Key(fleet.AnnotationOverrides), text)
	if v.broken = errs.ToAggregate(); v.broken != nil {
		return v, nil
	}
	if v.renderer, v.broken = override.NewRenderer(overrides, template.Workload.Manifests); v.broken != nil {
		return v, nil
	}
	return v, pass.pay(v.renderer.Cost())
}

func (v *variants) add(cluster *clusterv1.ManagedCluster) {
	known := override.Cluster{Name: cluster.Name, Labels: cluster.Labels, Claims: map[string]string{}}
	for _, claim := range cluster.Status.ClusterClaims {
		known.Claims[claim.Name] = claim.Value
	}
	v.clusters[cluster.Name] = known
}

// specFor is what a cluster is to have. Overrides change manifests alone: above all not the executor, which nobody would be asked about
// then.
func (v *variants) specFor(cluster string) (*workv1.ManifestWorkSpec, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	variant, err := v.variant(cluster)
	if err != nil {
		return nil, err
	}
	key := variantKey(variant.Key)
	if spec := v.kept[key]; spec != nil || v.failed[key] != nil {
		return spec, v.failed[key]
	}
	return v.render(key, variant)
}

// check tells whether a cluster can have anything, without making it again.
func (v *variants) check(cluster string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	variant, err := v.variant(cluster)
	if err != nil {
		return err
	}
	key := variantKey(variant.Key)
	err, known := v.failed[key]
	if !known {
		_, err = v.render(key, variant)
	}
	return err
}

func (v *variants) variant(cluster string) (*override.Variant, error) {
	if v.broken != nil {
		return nil, v.broken
	}
	known, found := v.clusters[cluster]
	if !found {
		known.Name = cluster
	}
	if err := v.pass.pay(0); err != nil {
		return nil, err
	}
	variant, err := v.renderer.Variant(known)
	if err != nil {
		return nil, err
	}
	return variant, v.pass.pay(variant.Cost())
}

func (v *variants) render(key variantKey, variant *override.Variant) (*workv1.ManifestWorkSpec, error) {
	manifests, cost, err := v.renderer.Render(variant)
	if long := v.pass.pay(cost); long != nil {
		return nil, long
	}
	v.failed[key] = err
	if err != nil {
		return nil, err
	}
	spec := *v.template
	spec.Workload.Manifests = manifests
	v.keep(key, &spec)
	return &spec, nil
}

// keep keeps a spec until there are too many.
func (v *variants) keep(key variantKey, spec *workv1.ManifestWorkSpec) {
	size := bytesOf(spec)
	if v.size += size; v.size > mostKept {
		clear(v.kept)
		v.size = size
	}
	v.kept[key] = spec
}

func bytesOf(spec *workv1.ManifestWorkSpec) (size int) {
	for i := range spec.Workload.Manifests {
		size += len(spec.Workload.Manifests[i].Raw)
	}
	return size
}

// specFor is what a cluster is to have when its turn comes.
func (s *situation) specFor(cluster string) (*workv1.ManifestWorkSpec, error) {
	if s.overrides == nil {
		return s.template, nil
	}
	return s.overrides.specFor(cluster)
}

// upToDate tells whether a work has what its cluster is to have. It fails if that can be nothing.
func (s *situation) upToDate(cluster string, w *work) (bool, error) {
	if w == nil && s.overrides != nil {
		return false, s.overrides.check(cluster)
	}
	if w == nil || w.compared {
		return w != nil && w.same, nil
	}
	spec, err := s.specFor(cluster)
	if err != nil {
		return false, err
	}
	w.compared, w.same = true, sameSpec(&w.Spec, spec)
	if !w.same && s.overrides != nil {
		err = s.overrides.pass.pay(bytesOf(spec) >> 6)
	}
	return w.same, err
}

// isCurrent tells whether a work has the template that the set has now, whatever is rolled out.
func (s *situation) isCurrent(w *work) bool {
	if s.template != &s.set.Spec.ManifestWorkTemplate {
		return false
	}
	same, err := s.upToDate(w.Namespace, w)
	return err == nil && same
}
