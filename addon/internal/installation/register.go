package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	"github.com/capstan-io/capstan/addon/internal/registrations"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// register writes the registrations of the agent to the status, and applies its permissions.
func (r *reconciliation) register(ctx context.Context) {
	status := &r.addOn.Status
	status.SupportedConfigs = supported(r.options)
	err := r.chooseNamespace(ctx)
	if err == nil {
		err = r.chooseIdentities(ctx)
	}
	switch {
	case managedcluster.Denied(r.installation.Cluster):
		r.refuse(ctx)
		return
	case err == nil:
		err = r.grant(ctx)
	}
	switch {
	case errors.Is(err, addon.ErrNotYet) && r.addOn.Status.Namespace == "" && r.awaitsConfigs():
		r.reportMissingConfigs()
	case errors.Is(err, addon.ErrNotYet) && !r.hasFailedToRegister(), errors.Is(err, config.ErrMissing) && r.isRegistered():
		r.requeueAfter(notYetAgain) // everything stays as it is
	case errors.Is(err, addon.ErrNotYet):
		r.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending, fmt.Sprintf(
			"The agent of the add-on has its rights when they are known, such as when a rollout reaches the cluster: %v", err))
		r.requeueAfter(notYetAgain)
	case errors.Is(err, config.ErrMissing):
		r.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending, err.Error())
		r.requeueAfter(notYetAgain)
	case errors.Is(err, addon.ErrSubjectNotReady):
		r.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending, err.Error())
	case err != nil:
		r.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonSetPermissionFailed, err.Error())
		r.problems = append(r.problems, err)
	case r.options.Registration == nil:
		r.set(fleet.ConditionRegistrationApplied, metav1.ConditionTrue, fleet.ReasonNilRegistration, "The add-on does not register with the hub")
	default:
		r.set(fleet.ConditionRegistrationApplied, metav1.ConditionTrue, fleet.ReasonSetPermissionApplied,
			"Registration of the addon agent is configured")
	}
}

// refuse revokes the permissions of an add-on on a cluster that was denied: its agent runs where the agent of the cluster runs. It gets
// them back when the cluster is accepted.
func (r *reconciliation) refuse(ctx context.Context) {
	if err := r.withdraw(ctx, client.ObjectKeyFromObject(r.addOn)); err != nil {
		r.problems = append(r.problems, err)
	}
	r.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonSetPermissionFailed,
		fmt.Sprintf("ManagedCluster %s is denied; the agent of the add-on has its rights when the cluster is accepted again", r.addOn.Namespace))
}

func supported(options addon.Options) []addonv1beta1.ConfigGroupResource {
	var types []addonv1beta1.ConfigGroupResource
	for _, config := range options.Configs {
		if t := (addonv1beta1.ConfigGroupResource{Group: config.Group, Resource: config.Resource}); !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types
}

// chooseNamespace decides where the agent is installed. While the add-on cannot determine it, the namespace stays as it was. Until the
// add-on has determined it once, the agent does not register: its credentials would be put into a namespace that changes. An add-on that is
// being deleted does not move.
func (r *reconciliation) chooseNamespace(ctx context.Context) error {
	chosen := r.addOn.Status.Namespace != ""
	switch {
	case !chosen && r.awaitsConfigs():
		return addon.ErrNotYet
	case chosen && !r.addOn.DeletionTimestamp.IsZero():
		return nil
	}
	namespace := ""
	if r.options.InstallNamespace != nil {
		var err error
		namespace, err = r.options.InstallNamespace(ctx, r.installation)
		if chosen && errors.Is(err, addon.ErrNotYet) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("choose the namespace of the agent: %w", err)
		}
	}
	r.addOn.Status.Namespace = namespace
	r.addOn.Status.Namespace = r.installation.Namespace()
	return nil
}

// chooseIdentities decides the identities with which the agent registers. The agent of the cluster declares how it gets its credential.
func (r *reconciliation) chooseIdentities(ctx context.Context) error {
	configs, err := registrations.Of(ctx, r.options.Registration, r.installation)
	if err != nil {
		return fmt.Errorf("find out what the agent registers for: %w", err)
	}
	for i := range configs {
		if configs[i].Type == addonv1beta1.KubeClient {
			registrations.Drive(&configs[i], r.before)
		}
	}
	r.addOn.Status.Registrations = configs
	return nil
}

// isRegistered reports whether the agent may register, or does not need to.
func (r *reconciliation) isRegistered() bool {
	return meta.IsStatusConditionTrue(r.addOn.Status.Conditions, fleet.ConditionRegistrationApplied)
}

// hasFailedToRegister reports whether the agent has no rights, for a reason that may have passed.
func (r *reconciliation) hasFailedToRegister() bool {
	return meta.IsStatusConditionFalse(r.addOn.Status.Conditions, fleet.ConditionRegistrationApplied)
}
