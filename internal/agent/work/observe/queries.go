package observe

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

// Observe registers the query that an owner has about a tracked object, in place of an earlier one. live is the object as the
// caller has just left it, or nil if it did not read it. The answer, if there is one yet, is that of Reading.
func (o *Observer) Observe(owner string, object tracker.Object, q conditions.Query, live *unstructured.Unstructured) {
	registered := o.register(owner, object, q)
	if live != nil {
		o.answer(object, owner, registered, o.evaluator.Read(live, q, o.MaxJSONRawLength), live.GetResourceVersion())
		o.catchUp(object, owner, registered)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if registered.reading == nil {
		o.schedule(object, "")
	}
}

// catchUp has the object read if it has changed since the query was answered. The watch may have had the event before there
// was a query.
func (o *Observer) catchUp(object tracker.Object, owner string, registered *query) {
	known := o.tracked.Version(object) // without the lock: the tracker calls with its own
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil || about.queries[owner] != registered || known == "" || known == registered.version || tracker.IsOlder(known, registered.version) {
		return
	}
	if !tracker.IsOlder(known, about.version) {
		o.schedule(object, known)
	}
}

// register returns the query as it is kept.
func (o *Observer) register(owner string, object tracker.Object, q conditions.Query) *query {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil {
		about = &observed{pace: newPace(), queries: map[string]*query{}}
		o.observed[object] = about
	}
	if o.owners[owner] == nil {
		o.owners[owner] = newPace()
	}
	registered := about.queries[owner]
	if registered == nil || !equality.Semantic.DeepEqual(registered.Query, q) {
		registered = &query{Query: q}
		about.queries[owner] = registered
	}
	return registered
}

// Reading is the answer to the owner's query about the object; nil if there is none yet.
func (o *Observer) Reading(owner string, object tracker.Object) *conditions.Reading {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil || about.queries[owner] == nil {
		return nil
	}
	return about.queries[owner].reading
}

// Forget drops the owner's query about the object, if there is one.
func (o *Observer) Forget(owner string, object tracker.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil {
		return
	}
	delete(about.queries, owner)
	if len(about.queries) == 0 {
		delete(o.observed, object)
	}
}

// ForgetOwner drops what is left of an owner that has no queries any more.
func (o *Observer) ForgetOwner(owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.owners, owner)
}
