package conditions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Delay is why objects of a work that is being deleted are still on the managed cluster.
type Delay struct {
	// Left is how many objects are still there.
	Left int
	// Reasons are those of the first of them, a few words each.
	Reasons []string
	// Dependents reports whether an object waits until its dependents have gone.
	Dependents bool
}

// Waiting is an object that was deleted and still exists.
type Waiting struct {
	schema.GroupResource
	types.NamespacedName
	Finalizers []string
	// Content is what its own conditions say of what it waits for, as those of a namespace do; empty if they say nothing.
	Content string
}

// maxReasons is how many objects a Delay has reasons of.
const maxReasons = 3

// NewDelay says why so many objects are left, of which some could not be deleted and others wait.
func NewDelay(left int, failures []error, waiting []Waiting) *Delay {
	d := &Delay{Left: left}
	for _, err := range failures {
		d.Reasons = append(d.Reasons, "could not "+text.Stable(err.Error()))
	}
	for _, o := range waiting {
		d.Dependents = d.Dependents || slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents)
		if len(d.Reasons) < maxReasons {
			d.Reasons = append(d.Reasons, fmt.Sprintf("%s %s %s", o.GroupResource, o.NamespacedName, DeletionBlockedBy(o.Finalizers, o.Content)))
		}
	}
	d.Reasons = d.Reasons[:min(len(d.Reasons), maxReasons)]
	return d
}

// Failures are the errors that were joined.
func Failures(err error) (failures []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, one := range joined.Unwrap() {
		failures = append(failures, Failures(one)...)
	}
	return failures
}

// DeletionBlockedBy says why an object that is being deleted still exists.
func DeletionBlockedBy(finalizers []string, content string) string {
	others := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	switch {
	case content != "":
		return "waits for what is in it: " + content
	case len(others) > 0:
		return "has the finalizers " + strings.Join(others, ", ")
	case len(finalizers) > 0:
		return "waits for the garbage collector of the cluster to delete its dependents (finalizer " + metav1.FinalizerDeleteDependents + ")"
	}
	return "is being deleted"
}

// ContentOf is what the conditions of a namespace, or of a definition of a kind, that is being deleted say of what it waits for. It is
// empty for other objects, and if they say nothing.
func ContentOf(object *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	var messages []string
	for _, entry := range list {
		condition, _ := entry.(map[string]any)
		kind, _ := condition["type"].(string)
		message, _ := condition["message"].(string)
		if condition["status"] == string(metav1.ConditionTrue) && message != "" && reportsContent(object.GetKind(), kind) {
			messages = append(messages, message)
		}
	}
	return clip(strings.Join(messages, "; "))
}

// reportsContent reports whether a condition that is True says what keeps an object of the kind from going.
func reportsContent(kind, condition string) bool {
	switch kind {
	case "Namespace":
		return strings.HasPrefix(condition, "NamespaceDeletion") || condition == string(corev1.NamespaceContentRemaining) ||
			condition == string(corev1.NamespaceFinalizersRemaining)
	case "CustomResourceDefinition":
		return condition == string(apiextensionsv1.Terminating)
	default:
		return false
	}
}

// Equal reports whether two delays say the same. Either may be nil, which is no delay.
func (d *Delay) Equal(o *Delay) bool {
	if d == nil || o == nil {
		return d == o
	}
	return d.Left == o.Left && d.Dependents == o.Dependents && slices.Equal(d.Reasons, o.Reasons)
}

// SetDeleting says that the work is being deleted, and what delays that; nil is nothing. It reports whether that changed anything.
func SetDeleting(work *workv1.ManifestWork, delay *Delay, now time.Time) (changed bool) {
	before := slices.Clone(work.Status.Conditions)
	newSetter(work.Generation, now).set(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionDeleting, Status: metav1.ConditionTrue, Reason: fleet.ReasonWorkDeleting, Message: deletingMessage(work, delay),
	})
	return !equality.Semantic.DeepEqual(before, work.Status.Conditions)
}

func deletingMessage(work *workv1.ManifestWork, delay *Delay) string {
	const message = "What the work has applied is being deleted from the managed cluster"
	if delay == nil {
		return message
	}
	var reasons []string
	for _, r := range delay.Reasons {
		reasons = append(reasons, clip(r))
	}
	if more := delay.Left - len(reasons); more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d more", more))
	}
	left := ""
	if delay.Left > 0 {
		left = fmt.Sprintf(", with %s left", text.Count(delay.Left, "object"))
	}
	explanation := fmt.Sprintf("%s. There is no progress%s: %s", message, left, strings.Join(reasons, "; "))
	if delay.Dependents {
		explanation += fmt.Sprintf(". If the cluster runs no garbage collector, that has no end; to wait for no dependents, run: kubectl -n %s patch "+
			"manifestwork %s "+
			`--type=merge -p '{"spec":{"deleteOption":null}}'`, work.Namespace, work.Name)
	}
	return explanation
}
