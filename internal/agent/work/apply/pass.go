package apply

import (
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/applied"
	"github.com/capstan-io/capstan/internal/agent/work/observe"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// pass is what is remembered of the last pass over a work.
type pass struct {
	work       types.UID
	generation int64
	owner      types.UID
	// named is what the work names, as its AppliedManifestWork writes it down.
	named    string
	outcomes []outcome
}

// outcome is what became of one manifest.
type outcome struct {
	ordinal  int
	identity manifest.Identity
	// mapping is the resource of the manifest's kind; it is known if resolved.
	mapping  *meta.RESTMapping
	resolved bool
	// owned tells whether the object is to go with the work.
	owned bool
	// uid and revision are of the object as the pass left it.
	uid      types.UID
	revision tracker.Revision
	// hash is of the manifest that was applied, and manifest is it, for what the next generation no longer names.
	hash     string
	manifest *unstructured.Unstructured
	// presence tells whether the object exists.
	presence presence
	// err is why the manifest is not applied.
	err error
	// frozen manifests are complete, and left as they are.
	frozen bool
	// recheck is when to ask again whether the executor may apply the manifest; zero is never.
	recheck time.Time
	// withheld objects are none that the executor may read, so what is in them is not for the hub.
	withheld bool
	// question is what the hub is to be told of the object, and live is the object if the pass read all of it, until the
	// question is asked.
	question observe.Question
	live     *unstructured.Unstructured
}

// presence of an object on the managed cluster.
type presence int

const (
	unknown presence = iota
	present
	absent
)

func (o *outcome) object() tracker.Object {
	return tracker.Object{GroupVersionResource: o.mapping.Resource, NamespacedName: types.NamespacedName{Namespace: o.identity.Namespace,
		Name: o.identity.Name}}
}

// resource is how an AppliedManifestWork records the object.
func (o *outcome) resource() workv1.AppliedManifestResourceMeta {
	r := applied.Resource(o.mapping, o.identity)
	r.UID = string(o.uid)
	return r
}

// find returns what the pass did with the object, for a pass may come after changes of the list.
func (p *pass) find(object tracker.Object) *outcome {
	if p == nil {
		return nil
	}
	for i := range p.outcomes {
		if o := &p.outcomes[i]; o.resolved && o.object() == object {
			return o
		}
	}
	return nil
}

// failures joins what went wrong with the manifests of a work.
func failures(outcomes []outcome) error {
	var errs []error
	for _, o := range outcomes {
		errs = append(errs, o.err)
	}
	return errors.Join(errs...)
}

// inventory is what a work owns after a pass, and what it no longer owns of what it did before. What could not be applied
// this time stays owned if it was. A change of version alone is none.
func inventory(before []workv1.AppliedManifestResourceMeta, outcomes []outcome) (owned, obsolete []workv1.AppliedManifestResourceMeta) {
	recorded := make(map[workv1.ResourceIdentifier]workv1.AppliedManifestResourceMeta, len(before))
	for _, r := range before {
		recorded[r.ResourceIdentifier] = r
	}
	named := make(map[workv1.ResourceIdentifier]bool, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		if !o.resolved {
			continue
		}
		r := o.resource()
		if named[r.ResourceIdentifier] {
			continue
		}
		named[r.ResourceIdentifier] = true
		if !o.owned && !o.frozen && o.err == nil {
			continue // it was let go
		}
		if old, ok := recorded[r.ResourceIdentifier]; ok && o.uid == "" {
			r = old
		}
		_, wasOwned := recorded[r.ResourceIdentifier]
		if r.UID != "" && (o.owned || wasOwned) {
			owned = append(owned, r)
		}
	}
	for _, r := range before {
		switch {
		case named[r.ResourceIdentifier]:
		case mayStandFor(outcomes, r):
			owned = append(owned, r) // nothing is taken away on a guess
		default:
			obsolete = append(obsolete, r)
		}
	}
	return owned, obsolete
}

// mayStandFor tells whether a manifest that cannot be read, or whose kind the cluster does not know now, may be about the
// resource.
func mayStandFor(outcomes []outcome, r workv1.AppliedManifestResourceMeta) bool {
	return slices.ContainsFunc(outcomes, func(o outcome) bool {
		if o.resolved {
			return false
		}
		return o.identity.Name == "" || o.identity.Group == r.Group && o.identity.Name == r.Name && o.identity.Namespace == r.Namespace
	})
}

// passes are the last passes by the name of their work.
type passes struct{ m sync.Map }

func (p *passes) get(work string) *pass {
	last, ok := p.m.Load(work)
	if !ok {
		return nil
	}
	return last.(*pass)
}

func (p *passes) put(work string, last *pass) { p.m.Store(work, last) }

func (p *passes) delete(work string) { p.m.Delete(work) }
