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
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/manifest/override"
)

// readOverrides prepares a renderer for a set with overrides. The works of a set without overrides all have its template.
func (c *Controller) readOverrides(ctx context.Context, s *snapshot) error {
	text := s.set.Annotations[fleet.AnnotationOverrides]
	if text == "" {
		return nil
	}
	var err error
	if s.renderer, err = newRenderer(text, s.template, s.pass); err != nil {
		return err
	}
	list := &clusterv1.ManagedClusterList{}
	if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the clusters for the overrides of ManifestWorkReplicaSet %s/%s: %w", s.set.Namespace, s.set.Name, err)
	}
	for i := range list.Items {
		s.renderer.addCluster(&list.Items[i])
	}
	return nil
}

// maxCacheSize bounds the bytes of the manifests that a renderer keeps, so that it does not render them again for a later step of the
// same pass, or for another cluster with the same values.
const maxCacheSize = 16 << 20

// renderer renders the specs of the works of a set with overrides. It lives as long as one pass.
type renderer struct {
	overrides *override.Renderer
	template  *workv1.ManifestWorkSpec
	// invalid is what is wrong with the overrides themselves; nil if they can be used.
	invalid  error
	clusters map[string]override.Cluster
	pass     *pass

	mu        sync.Mutex
	keys      map[string]variantKey // by cluster
	cache     map[variantKey]*workv1.ManifestWorkSpec
	cacheSize int // bytes of the manifests in cache
	// failures has an entry for each variant that was rendered: why it could not be, or nil.
	failures map[variantKey]error
}

// variantKey identifies the values that a spec is rendered with. Clusters with the same values share a spec.
type variantKey [sha256.Size]byte

func newRenderer(text string, template *workv1.ManifestWorkSpec, pass *pass) (*renderer, error) {
	r := &renderer{
		template: template, clusters: map[string]override.Cluster{}, pass: pass, keys: map[string]variantKey{},
		cache: map[variantKey]*workv1.ManifestWorkSpec{}, failures: map[variantKey]error{},
	}
	if err := pass.charge(len(text) >> 3); err != nil {
		return nil, err
	}
	overrides, errs := override.Parse(field.NewPath("metadata", "annotations").Key(fleet.AnnotationOverrides), text)
	if r.invalid = errs.ToAggregate(); r.invalid != nil {
		return r, nil //nolint:nilerr // invalid has it
	}
	if r.overrides, r.invalid = override.NewRenderer(overrides, template.Workload.Manifests); r.invalid != nil {
		return r, nil //nolint:nilerr // invalid has it
	}
	return r, pass.charge(r.overrides.Cost())
}

func (r *renderer) addCluster(cluster *clusterv1.ManagedCluster) {
	known := override.Cluster{Name: cluster.Name, Labels: cluster.Labels, Claims: map[string]string{}}
	for _, claim := range cluster.Status.ClusterClaims {
		known.Claims[claim.Name] = claim.Value
	}
	r.clusters[cluster.Name] = known
}

// clusterSpec returns the spec for the work of a cluster. Overrides change manifests only; above all not the executor, whose use admission
// has checked for the template.
func (r *renderer) clusterSpec(cluster string) (*workv1.ManifestWorkSpec, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	variant, err := r.variant(cluster)
	if err != nil {
		return nil, err
	}
	key := variantKey(variant.Key)
	if spec := r.cache[key]; spec != nil || r.failures[key] != nil {
		return spec, r.failures[key]
	}
	return r.render(key, variant)
}

// check returns why the spec of a cluster cannot be rendered; nil if it can. It renders a variant only once.
func (r *renderer) check(cluster string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	variant, err := r.variant(cluster)
	if err != nil {
		return err
	}
	key := variantKey(variant.Key)
	err, known := r.failures[key]
	if !known {
		_, err = r.render(key, variant)
	}
	return err
}

func (r *renderer) variant(cluster string) (*override.Variant, error) {
	if r.invalid != nil {
		return nil, r.invalid
	}
	known, found := r.clusters[cluster]
	if !found {
		known.Name = cluster
	}
	if err := r.pass.charge(0); err != nil {
		return nil, err
	}
	variant, err := r.overrides.Variant(known)
	if err != nil {
		return nil, err
	}
	r.keys[cluster] = variant.Key
	return variant, r.pass.charge(variant.Cost())
}

// keyOf returns which values the spec of a cluster was compared or rendered with last.
func (r *renderer) keyOf(cluster string) variantKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys[cluster]
}

func (r *renderer) render(key variantKey, variant *override.Variant) (*workv1.ManifestWorkSpec, error) {
	manifests, cost, err := r.overrides.Render(variant)
	if long := r.pass.charge(cost); long != nil {
		return nil, long
	}
	r.failures[key] = err
	if err != nil {
		return nil, err
	}
	spec := *r.template
	spec.Workload.Manifests = manifests
	r.store(key, &spec)
	return &spec, nil
}

// store keeps a spec in the cache, which it empties first when that would be too large.
func (r *renderer) store(key variantKey, spec *workv1.ManifestWorkSpec) {
	size := bytesOf(spec)
	if r.cacheSize += size; r.cacheSize > maxCacheSize {
		clear(r.cache)
		r.cacheSize = size
	}
	r.cache[key] = spec
}

func bytesOf(spec *workv1.ManifestWorkSpec) (size int) {
	for i := range spec.Workload.Manifests {
		size += len(spec.Workload.Manifests[i].Raw)
	}
	return size
}

// clusterSpec returns the spec for the work of a cluster, for when the rollout reaches it.
func (s *snapshot) clusterSpec(cluster string) (*workv1.ManifestWorkSpec, error) {
	if s.renderer == nil {
		return s.template, nil
	}
	return s.renderer.clusterSpec(cluster)
}

// upToDate reports whether a work has the spec of its cluster. It fails if that spec cannot be rendered.
func (s *snapshot) upToDate(cluster string, w *work) (bool, error) {
	if w == nil && s.renderer != nil {
		return false, s.renderer.check(cluster)
	}
	if w == nil || w.compared {
		return w != nil && w.same, nil
	}
	spec, err := s.clusterSpec(cluster)
	if err != nil {
		return false, err
	}
	w.compared, w.same = true, manifest.SameSpec(&w.Spec, spec)
	if !w.same && s.renderer != nil {
		err = s.renderer.pass.charge(bytesOf(spec) >> 6)
	}
	return w.same, err
}

// isCurrent reports whether a work has the present template of the set, even while another one is rolled out.
func (s *snapshot) isCurrent(w *work) bool {
	if s.template != &s.set.Spec.ManifestWorkTemplate {
		return false
	}
	same, err := s.upToDate(w.Namespace, w)
	return err == nil && same
}
