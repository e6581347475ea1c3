package observe

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

// Ask registers the question that an owner has about a tracked object, in place of an earlier one. live is the object as the
// caller has just left it, or nil if it did not read it. The answer, if there is one yet, is that of Reading.
func (o *Observer) Ask(owner string, object tracker.Object, q conditions.Question, live *unstructured.Unstructured) {
	asked := o.register(owner, object, q)
	if live != nil {
		o.answer(object, owner, asked, o.evaluator.Read(live, q, o.MaxJSONRawLength), live.GetResourceVersion())
		o.catchUp(object, owner, asked)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if asked.reading == nil {
		o.schedule(object, "")
	}
}

// catchUp has the object read if it has changed since the question was answered. The watch may have told of that before there
// was a question.
func (o *Observer) catchUp(object tracker.Object, owner string, asked *question) {
	known := o.tracked.Version(object) // without the lock: the tracker calls with its own
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil || about.questions[owner] != asked || known == "" || known == asked.version || tracker.IsOlder(known, asked.version) {
		return
	}
	if !tracker.IsOlder(known, about.version) {
		o.schedule(object, known)
	}
}

// register returns the question as it is kept.
func (o *Observer) register(owner string, object tracker.Object, q conditions.Question) *question {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil {
		about = &observed{pace: newPace(), questions: map[string]*question{}}
		o.observed[object] = about
	}
	if o.owners[owner] == nil {
		o.owners[owner] = newPace()
	}
	asked := about.questions[owner]
	if asked == nil || !equality.Semantic.DeepEqual(asked.Question, q) {
		asked = &question{Question: q}
		about.questions[owner] = asked
	}
	return asked
}

// Reading is the answer to the owner's question about the object; nil if there is none yet.
func (o *Observer) Reading(owner string, object tracker.Object) *conditions.Reading {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil || about.questions[owner] == nil {
		return nil
	}
	return about.questions[owner].reading
}

// Forget drops the owner's question about the object, if there is one.
func (o *Observer) Forget(owner string, object tracker.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := o.observed[object]
	if about == nil {
		return
	}
	delete(about.questions, owner)
	if len(about.questions) == 0 {
		delete(o.observed, object)
	}
}

// ForgetOwner drops what is left of an owner that has no questions any more.
func (o *Observer) ForgetOwner(owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.owners, owner)
}
