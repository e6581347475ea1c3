package conditions

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/manifest/feedback"
	"github.com/capstan-io/capstan/internal/machinery/manifest/objecthealth"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Query is what a work wants to know of an object.
type Query struct {
	FeedbackRules  []workv1.FeedbackRule
	ConditionRules []workv1.ConditionRule
	// Health requests the conditions that the object has without rules.
	Health bool
}

// IsEmpty reports whether the object need not be read at all.
func (q Query) IsEmpty() bool {
	return len(q.FeedbackRules) == 0 && len(q.ConditionRules) == 0 && !q.Health
}

// isRuled reports whether a rule is about the condition.
func (q Query) isRuled(condition string) bool {
	return slices.ContainsFunc(q.ConditionRules, func(r workv1.ConditionRule) bool { return r.Condition == condition })
}

// Reading is the answer to a Question.
type Reading struct {
	// Values are those of the feedback rules.
	Values []workv1.FeedbackValue
	// Conditions come from rules and from the health of the object. They have no times and generations.
	Conditions []metav1.Condition
	// Ended is the UID of the object if it is a Job that is complete or has failed, and may be gone since; empty otherwise.
	Ended types.UID
	// Failure says what could not be answered; empty means that everything was.
	Failure string
}

// Read answers a query about an object. maxJSONRaw is the most bytes of a value of type JsonRaw; 0 is for none.
func (e *Evaluator) Read(object *unstructured.Unstructured, q Query, maxJSONRaw int) *Reading {
	r := &Reading{}
	var feedbackErr, rulesErr error
	r.Values, feedbackErr = feedback.Values(object, q.FeedbackRules, maxJSONRaw)
	r.Conditions, rulesErr = e.Evaluate(object, q.ConditionRules)
	if err := errors.Join(feedbackErr, rulesErr); err != nil {
		r.Failure = err.Error()
	}
	r.derive(q, func() objecthealth.Health { return objecthealth.Of(object) })
	if objecthealth.HasEnded(object) {
		r.Ended = object.GetUID()
	}
	return r
}

// NotFound is the answer if the object does not exist.
func NotFound(q Query) *Reading {
	r := &Reading{}
	if len(q.FeedbackRules) > 0 || len(q.ConditionRules) > 0 {
		r.Failure = "the object does not exist on the managed cluster"
	}
	r.deriveInProgress(q, "the object does not exist")
	return r
}

// Unreadable is the answer if reading the object fails.
func Unreadable(q Query, err error) *Reading {
	r := &Reading{Failure: "the object cannot be read: " + text.Stable(err.Error())}
	r.deriveInProgress(q, r.Failure)
	return r
}

// Withheld is the answer if the executor of the work is not known to have the right to read the object.
func Withheld(q Query) *Reading {
	return Unreadable(q, errors.New("the executor of the work lacks the verb get, or that could not be found out"))
}

// notRead is the answer as long as the object has not been read.
func notRead(q Query) *Reading {
	r := &Reading{}
	r.deriveInProgress(q, "its state has not been read yet")
	return r
}

// derive adds the conditions that come without rules, unless there are rules for them.
func (r *Reading) derive(q Query, health func() objecthealth.Health) {
	if !q.Health {
		return
	}
	for _, cond := range ofHealth(health()) {
		if !q.isRuled(cond.Type) {
			r.Conditions = append(r.Conditions, cond)
		}
	}
}

func (r *Reading) deriveInProgress(q Query, message string) {
	r.derive(q, func() objecthealth.Health {
		return objecthealth.Health{Phase: objecthealth.InProgress, Message: message}
	})
}
