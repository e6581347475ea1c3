package conditions

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Dispute is about an object that others keep changing or deleting, so that it is repaired with delays.
type Dispute struct {
	// Deletions is how often the object was deleted, at least; 0 if others change its fields.
	Deletions int
	// Fields are those that others change.
	Fields []string
	// Writer is the field manager that wrote them last; empty if it is not known, or if it is the agent.
	Writer string
	// ByAgent is set if the agent is the only one who wrote the fields.
	ByAgent bool
	// Others are the works that name the object as well, such as "ManifestWork web".
	Others []string
}

// IsAbout reports whether the dispute is about a field, or anything in it; no dispute is about none.
func (d *Dispute) IsAbout(field string) bool {
	return d != nil && slices.ContainsFunc(d.Fields, func(disputed string) bool {
		inside, found := strings.CutPrefix(disputed, field)
		return found && (inside == "" || inside[0] == '.' || inside[0] == '[')
	})
}

// setDisputed sets the condition of a manifest, or removes it if there is no dispute. A rule may be about a condition of the same name.
func (s setter) setDisputed(conditions *[]metav1.Condition, r *Result) {
	switch {
	case r.Query.isRuled(fleet.ConditionDisputed):
	case r.Dispute == nil:
		meta.RemoveStatusCondition(conditions, fleet.ConditionDisputed)
	default:
		s.set(conditions, metav1.Condition{
			Type: fleet.ConditionDisputed, Status: metav1.ConditionTrue, Reason: r.Dispute.reason(), Message: clip(r.Dispute.String()),
		})
	}
}

// setWorkDisputed sets the condition of the work, or removes it if there is no dispute about any of its objects.
func (s setter) setWorkDisputed(conditions *[]metav1.Condition, results []Result) {
	if slices.ContainsFunc(results, func(r Result) bool { return r.Query.isRuled(fleet.ConditionDisputed) }) {
		return
	}
	var disputes []string
	for i := range results {
		if r := &results[i]; r.Dispute != nil {
			disputes = append(disputes, clip(nameOf(r.Manifest)+": "+r.Dispute.String()))
		}
	}
	if len(disputes) == 0 {
		meta.RemoveStatusCondition(conditions, fleet.ConditionDisputed)
		return
	}
	s.set(conditions, metav1.Condition{
		Type: fleet.ConditionDisputed, Status: metav1.ConditionTrue, Reason: fleet.ReasonManifestsDisputed,
		Message: fmt.Sprintf("%d of %d resources are in dispute: %s", len(disputes), len(results), Summary(disputes)),
	})
}

func (d *Dispute) reason() string {
	if d.Deletions > 0 {
		return fleet.ReasonObjectDeletedRepeatedly
	}
	return fleet.ReasonFieldsChangedRepeatedly
}

// String says what is in dispute, with whom, and what can be done about it.
func (d *Dispute) String() string {
	if d.Deletions > 0 {
		return fmt.Sprintf("The object was deleted at least %s. Who deletes it is not recorded. The agent makes it again at intervals of "+
			"up to a minute. Take the object out of the work, or set updateStrategy ReadOnly", text.Count(d.Deletions, "time"))
	}
	return fmt.Sprintf("Fields in dispute: %s. %s. The agent restores what the manifest says at intervals of up to a minute. %s",
		text.FirstFew(d.Fields), d.whoWrites(), d.remedyOfFields())
}

func (d *Dispute) whoWrites() string {
	switch {
	case d.Writer != "":
		return "They were last written by " + d.Writer
	case len(d.Others) > 0:
		return "The object is also named by " + text.FirstFew(d.Others)
	case d.ByAgent:
		return "No other client wrote them: the API server or an admission webhook changes what the agent writes"
	default:
		return "Who changed them is not recorded"
	}
}

func (d *Dispute) remedyOfFields() string {
	if d.Writer == "" && len(d.Others) > 0 {
		return "Name the object in one manifest only, or give all of them the same values"
	}
	return "Leave the fields out of the manifest, leave them to others with updateStrategy ServerSideApply and ignoreFields, " +
		"or set updateStrategy ReadOnly"
}
