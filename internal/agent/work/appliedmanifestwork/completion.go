package appliedmanifestwork

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// A work that is complete is left alone, and so is a complete manifest. The status of the work says which are, and is on the hub: an agent
// that gets works from a broker, which sends no status, has it from an annotation of the AppliedManifestWork when it starts.

// maxCompletion is how long the annotation may be: there are others, and all together have 256 KiB.
const maxCompletion = 32 << 10

// Completion is the status of what is complete of a work.
type Completion struct {
	// Work is the UID of the work: another one of the same name is to be applied. Some sources make the UID of the name, so the completion of
	// a work that has gone is to be forgotten.
	Work types.UID `json:"work"`
	// Status is that of the work if the work is complete; else it has the complete manifests alone.
	Status workv1.ManifestWorkStatus `json:"status"`
	// Reduced is set if the annotation has no room for more than what is complete: the hub has a better status.
	Reduced bool `json:"reduced,omitempty"`
}

// NewCompletion is what is complete of a work; nil if nothing is.
func NewCompletion(work *workv1.ManifestWork) *Completion {
	if meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionComplete) {
		return &Completion{Work: work.UID, Status: *work.Status.DeepCopy()}
	}
	c := &Completion{Work: work.UID}
	for i := range work.Status.ResourceStatus.Manifests {
		m := &work.Status.ResourceStatus.Manifests[i]
		if meta.IsStatusConditionTrue(m.Conditions, fleet.ConditionComplete) {
			c.Status.ResourceStatus.Manifests = append(c.Status.ResourceStatus.Manifests, *m.DeepCopy())
		}
	}
	if len(c.Status.ResourceStatus.Manifests) == 0 {
		return nil
	}
	return c
}

// Encode writes the completion down, as far as there is room.
func (c *Completion) Encode() string {
	if c == nil {
		return ""
	}
	for _, one := range []*Completion{c, c.reduced()} {
		if text := pack(one); len(text) <= maxCompletion {
			return text
		}
	}
	return ""
}

// reduced is what it takes to leave alone what is complete.
func (c *Completion) reduced() *Completion {
	r := &Completion{Work: c.Work, Reduced: true}
	if complete := meta.FindStatusCondition(c.Status.Conditions, fleet.ConditionComplete); complete != nil {
		meta.SetStatusCondition(&r.Status.Conditions, *complete)
		return r
	}
	for _, m := range c.Status.ResourceStatus.Manifests {
		short := workv1.ManifestCondition{ResourceMeta: m.ResourceMeta}
		for _, kind := range []string{fleet.ConditionAvailable, fleet.ConditionComplete} {
			if cond := meta.FindStatusCondition(m.Conditions, kind); cond != nil {
				withoutMessage := *cond
				withoutMessage.Message = ""
				short.Conditions = append(short.Conditions, withoutMessage)
			}
		}
		r.Status.ResourceStatus.Manifests = append(r.Status.ResourceStatus.Manifests, short)
	}
	return r
}

// CompletionOf reads what is written down of a work; nil if that is nothing, or cannot be read.
func CompletionOf(amw *workv1.AppliedManifestWork, work types.UID) *Completion {
	c := &Completion{}
	if unpack(amw.Annotations[fleet.AnnotationCompletion], c) != nil || c.Work != work {
		return nil
	}
	return c
}
