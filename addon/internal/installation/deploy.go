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
func (p *pass) deploy(ctx context.Context) {
	in := workload.Input{
		Options: p.options, Installation: p.installation, Hosting: p.hosting, CMA: p.catalogueEntry,
		Existing: p.works, Now: p.Clock.Now(),
	}
	// This condition is set whatever fails below: it tells the agent of the cluster where the add-on runs, and so where to put its
	// credentials.
	if validity := workload.Validity(in); validity != nil {
		p.set(validity.Type, validity.Status, validity.Reason, validity.Message)
	}
	missing, dependents, err := p.dependencies(ctx)
	if err != nil {
		p.problems, p.finalizers = append(p.problems, err), p.addOn.Finalizers
		return
	}
	in.Dependents = dependents
	if len(missing) == 0 {
		in.Workload, in.Unrendered = p.render(ctx)
	} else {
		p.set(fleet.ConditionManifestApplied, metav1.ConditionFalse, fleet.ReasonWaitingForDependencies,
			"The add-on is deployed when others are available on the cluster, which it needs: "+strings.Join(missing, ", "))
	}
	switch {
	case errors.Is(in.Unrendered, config.ErrMissing): // it is enqueued when the configuration is created
		p.comeBack(notYetAgain)
	case in.Unrendered != nil:
		p.problems = append(p.problems, in.Unrendered)
	}
	err = p.bring(ctx, in)
	if p.isClosed(err) {
		log.FromContext(ctx).Info("The namespace of the cluster is being deleted; the add-on is removed without its pre-delete hooks")
		in.Closed = true
		err = p.bring(ctx, in)
	}
	if err != nil {
		p.problems, p.finalizers = append(p.problems, err), p.addOn.Finalizers
	}
	if err != nil && !apierrors.IsConflict(err) {
		p.tellUnwritten(err)
	}
}

// isClosed tells whether a work of an add-on that is being deleted could not be created because the namespace of the cluster is being
// deleted, too.
func (p *pass) isClosed(err error) bool {
	of := new(workError)
	return !p.addOn.DeletionTimestamp.IsZero() && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) &&
		errors.As(err, &of) && of.work.Namespace == p.addOn.Namespace
}

// bring plans what the add-on needs, reports that, and writes it.
func (p *pass) bring(ctx context.Context, in workload.Input) error {
	plan, err := workload.New(in)
	if err != nil {
		return err
	}
	if len(in.Dependents) > 0 && !slices.Contains(plan.Finalizers, fleet.FinalizerAddOnPreDelete) && p.addOn.DeletionTimestamp.IsZero() {
		plan.Finalizers = append(plan.Finalizers, fleet.FinalizerAddOnPreDelete) // without it, the add-on would be gone before its dependents
	}
	p.finalizers = plan.Finalizers
	p.comeBack(plan.RequeueAfter)
	for _, condition := range plan.Conditions {
		p.set(condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	for _, kind := range plan.RemoveConditions {
		meta.RemoveStatusCondition(&p.addOn.Status.Conditions, kind)
	}
	return p.carryOut(ctx, plan)
}

// tellUnwritten reports an error in the condition for the cluster whose work could not be written.
func (p *pass) tellUnwritten(err error) {
	if of := new(workError); errors.As(err, &of) {
		condition := workload.Unwritten(client.ObjectKeyFromObject(p.addOn), of.work, err)
		p.set(condition.Type, condition.Status, condition.Reason, condition.Message)
		return
	}
	p.set(fleet.ConditionManifestApplied, metav1.ConditionFalse, fleet.ReasonManifestWorkApplyFailed, err.Error())
}

// dependencies returns the add-ons that have to become available before this one is deployed, and those that have to be gone before
// this one is removed.
func (p *pass) dependencies(ctx context.Context) (missing, dependents []string, err error) {
	others := &addonv1beta1.ManagedClusterAddOnList{}
	if err := p.client.List(ctx, others, client.InNamespace(p.addOn.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list the add-ons of the cluster %s: %w", p.addOn.Namespace, err)
	}
	dependents = dependencies.Dependents(p.addOn.Name, others.Items)
	if leaving, deployed := !p.addOn.DeletionTimestamp.IsZero(), len(p.works) > 0; leaving || deployed {
		return nil, dependents, nil
	}
	needed := dependencies.Of(p.addOn)
	if p.catalogueEntry != nil {
		needed = dependencies.Of(p.addOn, p.catalogueEntry)
	}
	return dependencies.Missing(p.addOn.Name, needed, others.Items), dependents, nil
}

// render calls the add-on for its manifests. It returns nil without an error if it is not yet time for that.
func (p *pass) render(ctx context.Context) (*addon.Workload, error) {
	leaving := !p.addOn.DeletionTimestamp.IsZero()
	if !leaving && !p.isRegistered() {
		return nil, nil
	}
	if p.awaitsConfigs() {
		return nil, nil
	}
	rendered, err := p.agent.Manifests(ctx, p.installation)
	switch {
	case errors.Is(err, addon.ErrNotYet),
		// The hub's own condition reports it. For an add-on that is being deleted the hub sets none, and the hooks are waited for.
		!leaving && errors.Is(err, config.ErrMissing) && meta.IsStatusConditionFalse(p.addOn.Status.Conditions, fleet.ConditionConfigured):
		p.comeBack(notYetAgain)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("make the manifests of the add-on %s for the cluster %s: %w", p.addOn.Name, p.addOn.Namespace, err)
	case rendered == nil:
		return nil, fmt.Errorf("the add-on %s has returned neither a Workload for the cluster %s nor an error: return an empty Workload if the cluster is "+
			"to have nothing",
			p.addOn.Name, p.addOn.Namespace)
	}
	return rendered, nil
}
