package admission

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest/override"
	"github.com/capstan-io/capstan/internal/rollout"
)

var replicaSetKind = workv1alpha1.GroupVersion.WithKind("ManifestWorkReplicaSet").GroupKind()

// ValidateManifestWorkReplicaSet validates a ManifestWorkReplicaSet that is created (old is nil) or updated: the manifests of its
// template by the rules for a ManifestWork, its rollout strategies, its executor, and its overrides. It fails with 400. An update is
// checked only for what it changes.
//
// The sender needs the right to execute as the executor in all namespaces: the hub writes the works, under its own identity, to all
// clusters that the placements select, now or later. Without this check, a user who may write a ManifestWorkReplicaSet could act as any
// identity on all clusters.
func ValidateManifestWorkReplicaSet(
	ctx context.Context, set, old *workv1alpha1.ManifestWorkReplicaSet, sender Sender, opts ManifestWorkOptions,
) error {
	var errs field.ErrorList
	template, work := field.NewPath("spec", "manifestWorkTemplate"), &set.Spec.ManifestWorkTemplate
	if old == nil || !equality.Semantic.DeepEqual(work.Workload, old.Spec.ManifestWorkTemplate.Workload) {
		errs = append(errs, validateManifests(template.Child("workload", "manifests"), work.Workload.Manifests, opts.Limit)...)
	}
	execution := executionOf(set, old)
	errs = append(errs, validateManifestConfigs(template, execution.now, execution.before)...)
	if err := validateExecutor(ctx, template.Child("executor"), execution, metav1.NamespaceAll, sender, opts); err != nil {
		errs = append(errs, err)
	}
	if err := validateRevisions(ctx, field.NewPath("metadata", "annotations").Key(fleet.AnnotationRevisions), set, old, sender); err != nil {
		errs = append(errs, err)
	}
	if old == nil || !equality.Semantic.DeepEqual(set.Spec.PlacementRefs, old.Spec.PlacementRefs) {
		errs = append(errs, validatePlacementRefs(field.NewPath("spec", "placementRefs"), set.Spec.PlacementRefs)...)
	}
	errs = append(errs, validateMoves(field.NewPath("metadata", "annotations"), set, old)...)
	errs = append(errs, validateOverrides(field.NewPath("metadata", "annotations").Key(fleet.AnnotationOverrides), set, old)...)
	if len(errs) == 0 {
		return nil
	}
	return badRequest(replicaSetKind, set.Name, errs)
}

// executionOf adds to the template what changes its effect: overrides change manifests, and a rollback restores a revision.
func executionOf(set, old *workv1alpha1.ManifestWorkReplicaSet) execution {
	e := execution{now: &set.Spec.ManifestWorkTemplate}
	if old == nil {
		return e
	}
	e.before = &old.Spec.ManifestWorkTemplate
	for _, annotation := range []string{fleet.AnnotationOverrides, fleet.AnnotationRevisions, fleet.AnnotationRollback} {
		e.amended = e.amended || set.Annotations[annotation] != old.Annotations[annotation]
	}
	return e
}

// validateRevisions allows only the hub, which is the sender that may write the status of all sets, to write the history of a set. The
// revisions become effective only with a matching executor, which the set may get later: a user with the right to that executor would
// see only hashes, and not notice that one of them is of a template that the set never had.
func validateRevisions(ctx context.Context, path *field.Path, set, old *workv1alpha1.ManifestWorkReplicaSet, sender Sender) *field.Error {
	revisions := set.Annotations[fleet.AnnotationRevisions]
	if revisions == "" || old != nil && revisions == old.Annotations[fleet.AnnotationRevisions] {
		return nil
	}
	err := sender.may(ctx, authorizationv1.ResourceAttributes{
		Group: workv1alpha1.GroupVersion.Group, Resource: "manifestworkreplicasets", Subresource: "status", Verb: "patch",
		Namespace: metav1.NamespaceAll,
	})
	if err == nil {
		return nil
	}
	return field.Forbidden(path, fmt.Sprintf(
		"the hub writes the revisions of a set: leave the annotation as it is, or take it out to have them forgotten; for user %q to write it, %v in all namespaces",
		sender.Name, err))
}

// validateMoves checks how works move when it changes.
func validateMoves(path *field.Path, set, old *workv1alpha1.ManifestWorkReplicaSet) (errs field.ErrorList) {
	changed := func(annotation string) (string, bool) {
		value, found := set.Annotations[annotation]
		return value, found && (old == nil || value != old.Annotations[annotation])
	}
	if value, ok := changed(fleet.AnnotationGracefulMove); ok && value != "true" && value != "false" {
		errs = append(errs, field.NotSupported(path.Key(fleet.AnnotationGracefulMove), value, []string{"true", "false"}))
	}
	if value, ok := changed(fleet.AnnotationMaxLost); ok {
		if _, err := rollout.ParseMaxLost(value); err != nil {
			errs = append(errs, field.Invalid(path.Key(fleet.AnnotationMaxLost), value, err.Error()))
		}
	}
	return errs
}

// validateOverrides parses the overrides when they change, and tries them when they or the manifests change: their cost depends on
// both.
func validateOverrides(path *field.Path, set, old *workv1alpha1.ManifestWorkReplicaSet) field.ErrorList {
	text, manifests := set.Annotations[fleet.AnnotationOverrides], set.Spec.ManifestWorkTemplate.Workload.Manifests
	changed := old == nil || text != old.Annotations[fleet.AnnotationOverrides]
	if text == "" || !changed && equality.Semantic.DeepEqual(manifests, old.Spec.ManifestWorkTemplate.Workload.Manifests) {
		return nil
	}
	overrides, errs := override.Parse(path, text)
	if len(errs) > 0 {
		if changed {
			return errs
		}
		return nil
	}
	if err := override.Try(overrides, manifests); err != nil {
		return field.ErrorList{field.Invalid(path, fmt.Sprintf("%d bytes", len(text)), err.Error())}
	}
	return nil
}

func validatePlacementRefs(path *field.Path, refs []workv1alpha1.LocalPlacementReference) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, ref := range refs {
		if seen[ref.Name] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), ref.Name))
		}
		seen[ref.Name] = true
		errs = append(errs, rollout.Validate(path.Index(i).Child("rolloutStrategy"), ref.RolloutStrategy)...)
	}
	return errs
}
