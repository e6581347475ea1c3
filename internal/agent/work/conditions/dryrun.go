package conditions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// maxPreview is how many bytes the reports on all manifests of a work may take together: they go into its status.
const maxPreview = 200 << 10

// Preview is what applying one manifest would do.
type Preview struct {
	// Manifest names the object as the status of the work does.
	Manifest workv1.ManifestResourceMeta
	// Reason and Message are those of the condition.
	Reason, Message string
}

// WouldCreate says that the object does not exist.
func (p *Preview) WouldCreate() { p.Reason, p.Message = fleet.ReasonWouldCreate, "It would be created" }

// WouldChange says how the object would be changed; no changes mean that it is as the manifest says.
func (p *Preview) WouldChange(changes []string) {
	if len(changes) == 0 {
		p.Reason, p.Message = fleet.ReasonWouldNotChange, "It is as the manifest says"
		return
	}
	p.Reason, p.Message = fleet.ReasonWouldChange, strings.Join(changes, "; ")
}

// WouldFail says why the manifest could not be applied.
func (p *Preview) WouldFail(err error) { p.Reason, p.Message = fleet.ReasonWouldFail, err.Error() }

// CannotBeTried says that the manifest needs another one of the work, of which a dry run makes nothing.
func (p *Preview) CannotBeTried(needed string) {
	p.Reason = fleet.ReasonCannotBeTried
	p.Message = fmt.Sprintf("It cannot be tried before %s is there, which is in this work, too", needed)
}

func (p *Preview) status() metav1.ConditionStatus {
	switch p.Reason {
	case fleet.ReasonWouldFail:
		return metav1.ConditionFalse
	case fleet.ReasonCannotBeTried:
		return metav1.ConditionUnknown
	default:
		return metav1.ConditionTrue
	}
}

// DryRunOf is the condition DryRun of a work; nil if there is none. Others may have set a condition of that type.
func DryRunOf(work *workv1.ManifestWork) *metav1.Condition {
	if cond := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionDryRun); cond != nil && isOfDryRun(*cond) {
		return cond
	}
	return nil
}

// isOfDryRun reports whether a dry run has set the condition.
func isOfDryRun(cond metav1.Condition) bool {
	if cond.Type != fleet.ConditionDryRun {
		return false
	}
	switch cond.Reason {
	case fleet.ReasonDryRunComplete, fleet.ReasonDryRunFailed, fleet.ReasonDryRunUnknown, fleet.ReasonWouldCreate, fleet.ReasonWouldChange,
		fleet.ReasonWouldNotChange, fleet.ReasonWouldFail, fleet.ReasonCannotBeTried:
		return true
	default:
		return false
	}
}

// SetDryRunUnknown says that the annotation for dry runs has a value that is not known.
func SetDryRunUnknown(work *workv1.ManifestWork, now time.Time) {
	newSetter(work.Generation, now).set(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionDryRun, Status: metav1.ConditionUnknown, Reason: fleet.ReasonDryRunUnknown,
		Message: fmt.Sprintf("The annotation %s is %q; it must be %q or %q. Nothing is applied until it is", fleet.AnnotationDryRun,
			work.Annotations[fleet.AnnotationDryRun], fleet.DryRunServer, fleet.DryRunNone),
	})
}

// RefuseDryRun says that the work would not be applied at all because of the error.
func RefuseDryRun(work *workv1.ManifestWork, claimed *ClaimedError, now time.Time) {
	newSetter(work.Generation, now).set(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionDryRun, Status: metav1.ConditionFalse, Reason: fleet.ReasonDryRunFailed, Message: claimed.Error(),
	})
}

// SetPreviews reports a dry run: what would become of each manifest, and which objects would be deleted.
func SetPreviews(work *workv1.ManifestWork, previews []Preview, deleted []workv1.AppliedManifestResourceMeta, now time.Time) {
	s := newSetter(work.Generation, now)
	limit := min(maxMessage, maxPreview/max(len(previews), 1))
	manifests := make([]workv1.ManifestCondition, 0, len(previews))
	for i := range previews {
		p := &previews[i]
		status := workv1.ManifestCondition{ResourceMeta: p.Manifest}
		if old := OfManifest(work, p.Manifest); old != nil {
			old.DeepCopyInto(&status)
			status.ResourceMeta = p.Manifest
		}
		s.set(&status.Conditions, metav1.Condition{
			Type: fleet.ConditionDryRun, Status: p.status(), Reason: p.Reason, Message: Clip(p.Message, limit),
		})
		manifests = append(manifests, status)
	}
	work.Status.ResourceStatus.Manifests = manifests
	s.set(&work.Status.Conditions, dryRunOfWork(previews, deleted))
}

func dryRunOfWork(previews []Preview, deleted []workv1.AppliedManifestResourceMeta) metav1.Condition {
	count := map[string]int{}
	var failed []string
	for i := range previews {
		p := &previews[i]
		count[p.Reason]++
		if p.Reason == fleet.ReasonWouldFail {
			failed = append(failed, clip(p.Message))
		}
	}
	cond := metav1.Condition{
		Type: fleet.ConditionDryRun, Status: metav1.ConditionTrue, Reason: fleet.ReasonDryRunComplete,
		Message: fmt.Sprintf("Of %d manifests, %d would be created, %d changed, %d left as they are, and %d cannot be tried; %d objects would be deleted%s",
			len(previews), count[fleet.ReasonWouldCreate], count[fleet.ReasonWouldChange], count[fleet.ReasonWouldNotChange],
			count[fleet.ReasonCannotBeTried], len(deleted), namesOf(deleted)),
	}
	if len(failed) > 0 {
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonDryRunFailed
		cond.Message = fmt.Sprintf("%d of %d manifests would fail: %s. %s", len(failed), len(previews), Summary(failed), cond.Message)
	}
	return cond
}

func namesOf(resources []workv1.AppliedManifestResourceMeta) string {
	if len(resources) == 0 {
		return ""
	}
	names := make([]string, 0, len(resources))
	for _, r := range resources {
		names = append(names, r.Resource+" "+types.NamespacedName{Namespace: r.Namespace, Name: r.Name}.String())
	}
	return ": " + clip(Summary(names))
}

// EndDryRun removes the report of a dry run that is over, and reports whether there was one.
func EndDryRun(work *workv1.ManifestWork) (changed bool) {
	if DryRunOf(work) == nil {
		return false
	}
	work.Status.Conditions = slices.DeleteFunc(work.Status.Conditions, isOfDryRun)
	manifests := &work.Status.ResourceStatus.Manifests
	for i := range *manifests {
		(*manifests)[i].Conditions = slices.DeleteFunc((*manifests)[i].Conditions, isOfDryRun)
	}
	*manifests = slices.DeleteFunc(*manifests, func(m workv1.ManifestCondition) bool { return len(m.Conditions) == 0 })
	return true
}
