package apply

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/repair"
)

// workResult is what is remembered of the last pass over a work.
type workResult struct {
	work       types.UID
	generation int64
	owner      types.UID
	// named is what the work names, as its AppliedManifestWork writes it down.
	named   string
	results []manifestResult
}

// manifestResult is the result of applying one manifest.
type manifestResult struct {
	ordinal  int
	identity manifest.Identity
	// mapping is the resource of the manifest's kind; it is known if resolved.
	mapping  *meta.RESTMapping
	resolved bool
	// owned reports whether the object is to go with the work.
	owned bool
	// uid and revision are of the object as the pass left it.
	uid      types.UID
	revision tracker.Revision
	// found is the UID of the object, if it exists and the manifest failed before it was read.
	found types.UID
	// hash is of the manifest that was to be applied, and manifest is it; nil under ReadOnly.
	hash     string
	manifest *unstructured.Unstructured
	// written is the manifest that the agent wrote last, without the fields to ignore: what the next one no longer names of it goes. It is nil
	// if all that is known to be there is by others.
	written *unstructured.Unstructured
	// missingOwners are those that the manifest names and the cluster does not have, such as "ConfigMap web with uid 1".
	missingOwners []string
	// presence reports whether the object exists.
	presence conditions.Presence
	// err is why the manifest is not applied, and missing is the object that the cluster lacks for it, if that is why: it is tracked, so that
	// the work gets a pass when it is there.
	err     error
	missing *tracker.Object
	// applied reports whether the manifest was applied under the generation of the pass, whatever has become of the object since.
	applied bool
	// backoffUntil is until when a repair of the object is delayed; zero if none is. dispute is what the dispute about it is about, if
	// there is one.
	backoffUntil time.Time
	dispute      *conditions.Dispute
	// disputeBefore is what the dispute was about under the manifest that was applied last, while this one fails.
	disputeBefore *conditions.Dispute
	// ended is set if the manifest is that of a Job that has ended, as far as that was known when the pass began.
	ended bool
	// frozen manifests are complete, and left as they are.
	frozen bool
	// requeueAt is when to reconcile the manifest again without an event: to check whether the executor may apply it, to make a repair, or to
	// end a dispute. Zero is never.
	requeueAt time.Time
	// withheld objects may not be read by the executor, as far as is known, so their content is not reported.
	withheld bool
	// query is what is to be reported of the object.
	query conditions.Query
}

// lastDispute is what the dispute about the object is about, or was about under the manifest that was applied last; nil if there is none.
func (o *manifestResult) lastDispute() *conditions.Dispute { return cmp.Or(o.dispute, o.disputeBefore) }

func (o *manifestResult) object() tracker.Object {
	return tracker.Object{GroupVersionResource: o.mapping.Resource, NamespacedName: types.NamespacedName{Namespace: o.identity.Namespace,
		Name: o.identity.Name}}
}

// tracked are the objects whose events requeue the work.
func (o *manifestResult) tracked() (objects []tracker.Object) {
	if o.resolved {
		objects = append(objects, o.object())
	}
	if o.missing != nil {
		objects = append(objects, *o.missing)
	}
	return objects
}

// anyVersion is the object, whatever the version in which the manifest has it.
func (o *manifestResult) anyVersion() repair.Object {
	return repair.Object{GroupKind: o.identity.GroupKind(), NamespacedName: o.object().NamespacedName}
}

// namedObjects are those of the manifests of a work so far, with the ordinals of the manifests.
type namedObjects map[repair.Object]int

// add fails if an earlier manifest is of the same object.
func (n namedObjects) add(o *manifestResult) error {
	object := o.anyVersion()
	if before, found := n[object]; found {
		return fmt.Errorf("%s: it is not applied, because manifest %d of this work is of the same object: leave one of the two out",
			o.identity, before)
	}
	n[object] = o.ordinal
	return nil
}

// resourceMeta is how the status of a work names the manifest's object.
func (o *manifestResult) resourceMeta() workv1.ManifestResourceMeta {
	resource := workv1.ManifestResourceMeta{
		Ordinal: int32(o.ordinal), //nolint:gosec // an object has no room for that many manifests
		Group:   o.identity.Group, Version: o.identity.Version, Kind: o.identity.Kind,
		Name: o.identity.Name, Namespace: o.identity.Namespace,
	}
	if o.resolved {
		resource.Resource = o.mapping.Resource.Resource
	}
	return resource
}

// resource is how an AppliedManifestWork records the object.
func (o *manifestResult) resource() workv1.AppliedManifestResourceMeta {
	r := appliedmanifestwork.Resource(o.mapping, o.identity)
	r.UID = string(o.uid)
	return r
}

// isOf reports whether it was a pass over the present generation of the work.
func (p *workResult) isOf(work *workv1.ManifestWork, owner types.UID) bool {
	return p != nil && p.work == work.UID && p.generation == work.Generation && p.owner == owner
}

// find returns what the pass did with the object, for a pass may come after changes of the list.
func (p *workResult) find(object tracker.Object) *manifestResult {
	if p == nil {
		return nil
	}
	for i := range p.results {
		if o := &p.results[i]; o.resolved && o.object() == object {
			return o
		}
	}
	return nil
}

// failsWith reports whether a manifest has failed that is about the object, or lacks it. It may be so if there was no pass.
func (p *workResult) failsWith(object tracker.Object) bool {
	return p == nil || slices.ContainsFunc(p.results, func(o manifestResult) bool {
		return o.err != nil && slices.Contains(o.tracked(), object)
	})
}

// fails reports whether a manifest has failed.
func (p *workResult) fails() bool {
	return p != nil && failures(p.results) != nil
}

// failures joins what went wrong with the manifests of a work.
func failures(results []manifestResult) error {
	var errs []error
	for _, o := range results {
		errs = append(errs, o.err)
	}
	return errors.Join(errs...)
}

// workResults are the last passes by the name of their work.
type workResults struct {
	m sync.Map
	// counting guards what the metric has of them; none is counted once they have ended.
	counting sync.Mutex
	ended    bool
}

func (p *workResults) get(work string) *workResult {
	last, ok := p.m.Load(work)
	if !ok {
		return nil
	}
	return last.(*workResult)
}

func (p *workResults) put(work string, last *workResult) {
	p.counting.Lock()
	defer p.counting.Unlock()
	before, _ := p.m.Swap(work, last)
	p.count(last, 1)
	if before != nil {
		p.count(before.(*workResult), -1)
	}
}

func (p *workResults) delete(work string) {
	p.counting.Lock()
	defer p.counting.Unlock()
	if last, ok := p.m.LoadAndDelete(work); ok {
		p.count(last.(*workResult), -1)
	}
}

// end takes all disputes off the metric. A pass that ends later adds none.
func (p *workResults) end() {
	p.counting.Lock()
	defer p.counting.Unlock()
	p.m.Range(func(_, last any) bool {
		p.count(last.(*workResult), -1)
		return true
	})
	p.ended = true
}

func (p *workResults) count(last *workResult, sign float64) {
	if !p.ended {
		last.countDisputes(sign)
	}
}
