package conditions

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// setter sets conditions for a generation of a work, at a time.
type setter struct {
	generation int64
	now        metav1.Time
}

func newSetter(generation int64, now time.Time) setter {
	return setter{generation: generation, now: metav1.NewTime(now)}
}

// set sets a condition. Its time changes with its status.
func (s setter) set(conditions *[]metav1.Condition, cond metav1.Condition) {
	cond.ObservedGeneration, cond.LastTransitionTime = s.generation, s.now
	meta.SetStatusCondition(conditions, cond)
}

// setOfGeneration sets a condition that gets a new time with a new generation, even if it says the same: clients take it as made anew for
// each generation, and a rollout counts the time from when the condition was found of what the rollout wrote.
func (s setter) setOfGeneration(conditions *[]metav1.Condition, cond metav1.Condition) {
	last := meta.FindStatusCondition(*conditions, cond.Type)
	if last == nil || last.ObservedGeneration == s.generation {
		s.set(conditions, cond)
		return
	}
	s.setWithNewTime(conditions, cond)
}

// setWithNewTime sets a condition and its time. It keeps its place in the list.
func (s setter) setWithNewTime(conditions *[]metav1.Condition, cond metav1.Condition) {
	s.set(conditions, cond)
	meta.FindStatusCondition(*conditions, cond.Type).LastTransitionTime = s.now
}

// maxMessage is how many bytes of one message are reported. An API server may quote all of an object that it refuses; a hub refuses a
// status with a message that is longer than the API allows, and the messages of a thousand manifests have to fit into one object.
const maxMessage = 1024

func clip(message string) string { return Clip(message, maxMessage) }

// Clip is the message if it has at most so many bytes, or else its beginning of that length, followed by " ...".
func Clip(message string, limit int) string {
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit], "") + " ..."
}

// maxSummary is how many messages a summary has.
const maxSummary = 3

// Summary joins the first three messages, and says how many more there are: all of them are in the conditions of the manifests.
func Summary(messages []string) string {
	if more := len(messages) - maxSummary; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(messages[:maxSummary], "; "), more)
	}
	return strings.Join(messages, "; ")
}
