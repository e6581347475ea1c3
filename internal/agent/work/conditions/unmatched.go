package conditions

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// setRulesUnmatched says which manifestConfigs and orphaning rules are about none of the manifests, or removes the condition if each of
// them is about one, or may be: the kind of a manifest that cannot be read is not known. A rule may be about a condition of the same name.
func (s setter) setRulesUnmatched(work *workv1.ManifestWork, results []Result) {
	if slices.ContainsFunc(results, func(r Result) bool { return r.Query.isRuled(fleet.ConditionRulesUnmatched) }) {
		return
	}
	manifests := make([]workv1.ManifestResourceMeta, len(results))
	for i := range results {
		manifests[i] = results[i].Manifest
	}
	isUnreadable := func(m workv1.ManifestResourceMeta) bool { return m.Kind == "" }
	unmatched := manifest.Unmatched(field.NewPath("spec"), &work.Spec, manifests)
	if len(unmatched) == 0 || slices.ContainsFunc(manifests, isUnreadable) {
		meta.RemoveStatusCondition(&work.Status.Conditions, fleet.ConditionRulesUnmatched)
		return
	}
	s.set(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionRulesUnmatched, Status: metav1.ConditionTrue, Reason: fleet.ReasonNoSuchManifest, Message: clip(Summary(unmatched)),
	})
}
