package override

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
)

// Renderer makes manifests as clusters are to have them. It reads the manifests once, and those that it is given stay as they are. It is
// for one goroutine.
type Renderer struct {
	overrides []Override
	manifests []workv1.Manifest
	// changed are the manifests that an override is about, by override, and roots what is in them.
	changed [][]int
	roots   map[int]value
	most    int // bytes of the result
	cost    int // of reading the manifests
}

// NewRenderer returns one for manifests of Kubernetes objects.
func NewRenderer(overrides []Override, manifests []workv1.Manifest) (*Renderer, error) {
	r := &Renderer{overrides: overrides, manifests: manifests, changed: make([][]int, len(overrides)), roots: map[int]value{}}
	size := 0
	for i := range manifests {
		size += len(manifests[i].Raw)
		if err := r.add(i); err != nil {
			return nil, fmt.Errorf("overrides of manifest %d: the manifest is not a Kubernetes object: %w", i, err)
		}
	}
	r.most = budget.Result(size)
	r.cost = size>>7 + len(manifests)*len(overrides)>>7
	return r, nil
}

func (r *Renderer) add(manifest int) error {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(r.manifests[manifest].Raw, &object); err != nil {
		return err
	}
	for i := range r.overrides {
		if r.overrides[i].Manifest.matches(&object) {
			r.changed[i] = append(r.changed[i], manifest)
		}
	}
	return nil
}

// root is what is in a manifest.
func (r *Renderer) root(manifest int) (value, error) {
	if root, found := r.roots[manifest]; found {
		return root, nil
	}
	root, err := read(r.manifests[manifest].Raw)
	if err == nil {
		r.roots[manifest] = root
	}
	return root, err
}

// Variant is what the overrides are on some clusters.
type Variant struct {
	// Key is that of all clusters for which the overrides come to the same.
	Key [sha256.Size]byte
	// applied are the overrides that change something there.
	applied []applied
	// steps are those that it took to read the values.
	steps int
}

// applied is an override with a value for each of its assignments.
type applied struct {
	override int
	values   []value
}

// Variant finds out what the overrides are on a cluster. It fails if the cluster lacks a value, and with a budget.Exceeded if it takes too
// long to read them.
func (r *Renderer) Variant(cluster Cluster) (*Variant, error) {
	v, allowed, hash := &Variant{}, r.allowance(), sha256.New()
	note := func(n int) { hash.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) } //nolint:gosec // a length or an index
	for i := range r.overrides {
		o := &r.overrides[i]
		if len(r.changed[i]) == 0 || !o.matches(cluster) {
			continue
		}
		note(i)
		a := applied{override: i, values: make([]value, len(o.Set))}
		for j := range o.Set {
			value, bytes, err := o.Set[j].valueFor(cluster)
			if err == nil {
				err = allowed.steps.Spend(bytes >> 7)
			}
			if err != nil {
				return nil, fmt.Errorf("override %d: set %s: %w", i, o.Set[j].Path, err)
			}
			if a.values[j] = value; len(o.Set[j].Value) == 0 { // the others are the same for all
				note(len(value.text))
				hash.Write(value.text)
			}
		}
		v.applied = append(v.applied, a)
	}
	v.steps = allowed.steps.Spent()
	note(v.steps)
	hash.Sum(v.Key[:0])
	return v, nil
}

// Cost is what it takes to read the manifests, in steps.
func (r *Renderer) Cost() int { return r.cost }

// Cost is what it took to find out, in steps.
func (v *Variant) Cost() int { return v.steps + len(v.applied)>>3 }

// Render returns the manifests with the overrides of a variant, and what that took, in steps, also if it fails: with a budget.Exceeded if
// it would take too many, or too much would become of the manifests.
func (r *Renderer) Render(v *Variant) (manifests []workv1.Manifest, cost int, err error) {
	allowed := r.allowance()
	manifests, err = r.render(v, allowed)
	return manifests, allowed.steps.Spent() + allowed.bytes.Spent()>>9, err
}

func (r *Renderer) render(v *Variant, allowed *allowance) ([]workv1.Manifest, error) {
	if err := allowed.steps.Spend(v.steps); err != nil {
		return nil, err
	}
	documents := map[int]*document{}
	for _, a := range v.applied {
		for _, manifest := range r.changed[a.override] {
			d, err := r.document(documents, manifest, allowed)
			if err == nil {
				err = r.overrides[a.override].apply(d, a.values)
			}
			if err != nil {
				return nil, fmt.Errorf("overrides of manifest %d: override %d: %w", manifest, a.override, err)
			}
		}
	}
	return r.write(documents, allowed)
}

// document is that of a manifest among those that are being changed.
func (r *Renderer) document(documents map[int]*document, manifest int, allowed *allowance) (*document, error) {
	d := documents[manifest]
	if d == nil {
		root, err := r.root(manifest)
		if err != nil {
			return nil, err
		}
		d = &document{root: root, owner: &owner{}, allowed: allowed}
		documents[manifest] = d
	}
	return d, nil
}

// write returns all manifests, of which those without a document are as they were.
func (r *Renderer) write(documents map[int]*document, allowed *allowance) ([]workv1.Manifest, error) {
	result := slices.Clone(r.manifests)
	for i := range result {
		size, d := len(result[i].Raw), documents[i]
		if d != nil {
			var err error
			if size, err = d.measure(&d.root); err != nil {
				return nil, err
			}
		}
		if err := allowed.bytes.Spend(size); err != nil {
			return nil, fmt.Errorf("overrides of manifest %d: %w", i, err)
		}
		if d != nil {
			result[i] = workv1.Manifest{}
			result[i].Raw = d.root.appendTo(make([]byte, 0, size))
		}
	}
	return result, nil
}

// allowance is what the overrides for one cluster may take.
type allowance struct {
	steps  *budget.Meter
	bytes  *budget.Meter // of the results
	most   int           // bytes of the results, and of what is copied
	copies int           // bytes
}

func (r *Renderer) allowance() *allowance {
	return &allowance{
		steps: budget.NewMeter("the overrides change too many manifests too often, counted in steps", mostSteps),
		bytes: budget.NewMeter("with the overrides, the manifests have too many bytes", r.most),
		most:  r.most,
	}
}

// Try finds out whether the overrides go beyond what they may for these manifests: what is larger than it may be for one cluster is refused
// when it is written. It tries each override on what those before it make of the manifests for all clusters, as if it were for the
// cluster. Whatever else is wrong with an override may be so on some clusters only.
func Try(overrides []Override, manifests []workv1.Manifest) error {
	r, err := NewRenderer(overrides, manifests)
	if err != nil {
		return nil //nolint:nilerr // not what is tried
	}
	t := trial{Renderer: r, allowed: r.allowance(), documents: map[int]*document{}}
	for i := range overrides {
		for _, manifest := range r.changed[i] {
			if err := t.try(i, manifest); err != nil {
				return fmt.Errorf("overrides of manifest %d: override %d: %w", manifest, i, err)
			}
		}
	}
	_, err = r.write(t.documents, t.allowed)
	return err
}

// trial is what becomes of manifests when overrides are tried.
type trial struct {
	*Renderer
	allowed   *allowance
	documents map[int]*document
}

func (t *trial) try(override, manifest int) error {
	d, err := t.document(t.documents, manifest, t.allowed)
	if err != nil {
		return nil //nolint:nilerr // not what is tried
	}
	before, o := d.root, &t.overrides[override]
	d.copyOnWrite()
	copied := t.allowed.copies
	err = t.apply(o, d)
	if err == nil && o.Clusters == nil {
		return nil
	}
	if err == nil {
		err = t.fits(d)
	}
	d.root = before // what is for some clusters, or fails, changes nothing for the overrides after it
	d.copyOnWrite()
	t.allowed.copies = copied
	if budget.Is(err) {
		return err
	}
	return nil
}

// apply leaves out what cannot be set without a cluster.
func (t *trial) apply(o *Override, d *document) error {
	for i := range o.Set {
		value, _, err := o.Set[i].valueFor(Cluster{})
		if err != nil {
			value = null
		}
		if err := d.set(o.Set[i].pointer, value); budget.Is(err) {
			return fmt.Errorf("set %s: %w", o.Set[i].Path, err)
		}
	}
	rest := *o
	rest.Set = nil
	return rest.apply(d, nil)
}

// fits reports whether one manifest alone has too many bytes.
func (t *trial) fits(d *document) error {
	size, err := d.measure(&d.root)
	if err == nil && size > t.allowed.most {
		err = t.Renderer.allowance().bytes.Spend(size)
	}
	return err
}
