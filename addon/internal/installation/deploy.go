package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	"github.com/capstan-io/capstan/addon/internal/workload"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/addon/dependencies"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// deploy creates, updates and deletes the works of the add-on.
func (r *reconciliation) deploy(ctx context.Context) {
	in := workload.Input{
		Options: r.options, Installation: r.installation, Hosting: r.hosting, CMA: r.catalogueEntry,
		Existing: r.works, Now: r.Clock.Now(),
	}
	// This condition is set whatever fails below: from it, the agent of the cluster learns where the add-on runs, and so where to put its
	// credentials.
	if validity := workload.Validity(in); validity != nil {
		r.set(validity.Type, validity.Status, validity.Reason, validity.Message)
	}
	missing, dependents, err := r.dependencies(ctx)
	if err != nil {
		r.problems, r.finalizers = append(r.problems, err), r.addOn.Finalizers
		return
	}
	in.Dependents = dependents
	if len(missing) == 0 {
		in.Workload, in.Unrendered = r.render(ctx)
	} else {
		r.set(fleet.ConditionManifestApplied, metav1.ConditionFalse, fleet.ReasonWaitingForDependencies,
			"The add-on is deployed when others are available on the cluster, which it needs: "+strings.Join(missing, ", "))
	}
	switch {
	case errors.Is(in.Unrendered, config.ErrMissing): // it is enqueued when the configuration is created
		r.requeueAfter(notYetAgain)
	case in.Unrendered != nil:
		r.problems = append(r.problems, in.Unrendered)
	}
	err = r.deployPlan(ctx, in)
	if r.isClosed(err) {
		log.FromContext(ctx).Info("The namespace of the cluster is being deleted; the add-on is removed without its pre-delete hooks")
		in.Closed = true
		err = r.deployPlan(ctx, in)
	}
	if err != nil {
		r.problems, r.finalizers = append(r.problems, err), r.addOn.Finalizers
	}
	if err != nil && !apierrors.IsConflict(err) {
		r.reportUnwritten(err)
	}
}

// isClosed reports whether a work of an add-on that is being deleted could not be created because the namespace of the cluster is being
// deleted, too.
func (r *reconciliation) isClosed(err error) bool {
	of := new(workError)
	return !r.addOn.DeletionTimestamp.IsZero() && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) &&
		errors.As(err, &of) && of.work.Namespace == r.addOn.Namespace
}

// deployPlan plans what the add-on needs, reports that, and writes it.
func (r *reconciliation) deployPlan(ctx context.Context, in workload.Input) error {
	plan, err := workload.New(in)
	if err != nil {
		return err
	}
	if len(in.Dependents) > 0 && !slices.Contains(plan.Finalizers, fleet.FinalizerAddOnPreDelete) && r.addOn.DeletionTimestamp.IsZero() {
		plan.Finalizers = append(plan.Finalizers, fleet.FinalizerAddOnPreDelete) // without it, the add-on would be gone before its dependents
	}
	r.finalizers = plan.Finalizers
	r.requeueAfter(plan.RequeueAfter)
	for _, condition := range plan.Conditions {
		r.set(condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	for _, kind := range plan.RemoveConditions {
		meta.RemoveStatusCondition(&r.addOn.Status.Conditions, kind)
	}
	return r.carryOut(ctx, plan)
}

// reportUnwritten reports an error in the condition for the cluster whose work could not be written.
func (r *reconciliation) reportUnwritten(err error) {
	if of := new(workError); errors.As(err, &of) {
		condition := workload.Unwritten(client.ObjectKeyFromObject(r.addOn), of.work, err)
		r.set(condition.Type, condition.Status, condition.Reason, condition.Message)
		return
	}
	r.set(fleet.ConditionManifestApplied, metav1.ConditionFalse, fleet.ReasonManifestWorkApplyFailed, err.Error())
}

// dependencies returns the add-ons that have to become available before this one is deployed, and those that have to be gone before
// this one is removed.
func (r *reconciliation) dependencies(ctx context.Context) (missing, dependents []string, err error) {
	others := &addonv1beta1.ManagedClusterAddOnList{}
	if err := r.client.List(ctx, others, client.InNamespace(r.addOn.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list the add-ons of the cluster %s: %w", r.addOn.Namespace, err)
	}
	dependents = dependencies.Dependents(r.addOn.Name, others.Items)
	if leaving, deployed := !r.addOn.DeletionTimestamp.IsZero(), len(r.works) > 0; leaving || deployed {
		return nil, dependents, nil
	}
	needed := dependencies.Of(r.addOn)
	if r.catalogueEntry != nil {
		needed = dependencies.Of(r.addOn, r.catalogueEntry)
	}
	return dependencies.Missing(r.addOn.Name, needed, others.Items), dependents, nil
}

// render calls the add-on for its manifests. It returns nil without an error if it is not yet time for that.
func (r *reconciliation) render(ctx context.Context) (*addon.Workload, error) {
	leaving := !r.addOn.DeletionTimestamp.IsZero()
	if !leaving && !r.isRegistered() {
		return nil, nil
	}
	if r.awaitsConfigs() {
		return nil, nil
	}
	rendered, err := r.agent.Manifests(ctx, r.installation)
	switch {
	case errors.Is(err, addon.ErrNotYet),
		// The hub's own condition reports it. For an add-on that is being deleted the hub sets none, and the hooks are waited for.
		!leaving && errors.Is(err, config.ErrMissing) && meta.IsStatusConditionFalse(r.addOn.Status.Conditions, fleet.ConditionConfigured):
		r.requeueAfter(notYetAgain)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("make the manifests of the add-on %s for the cluster %s: %w", r.addOn.Name, r.addOn.Namespace, err)
	case rendered == nil:
		return nil, fmt.Errorf("the add-on %s has returned neither a Workload for the cluster %s nor an error: return an empty Workload if the cluster is "+
			"to have nothing",
			r.addOn.Name, r.addOn.Namespace)
	}
	return rendered, nil
}
