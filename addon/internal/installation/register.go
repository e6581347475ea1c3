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
func (p *pass) register(ctx context.Context) {
	status := &p.addOn.Status
	status.SupportedConfigs = supported(p.options)
	err := p.chooseNamespace(ctx)
	if err == nil {
		err = p.chooseIdentities(ctx)
	}
	switch {
	case managedcluster.Denied(p.installation.Cluster):
		p.refuse(ctx)
		return
	case err == nil:
		err = p.grant(ctx)
	}
	switch {
	case errors.Is(err, addon.ErrNotYet) && p.addOn.Status.Namespace == "" && p.awaitsConfigs():
		p.tellOfConfigs()
	case errors.Is(err, addon.ErrNotYet), errors.Is(err, config.ErrMissing) && p.isRegistered(): // everything stays as it is
		p.comeBack(notYetAgain)
	case errors.Is(err, config.ErrMissing):
		p.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending, err.Error())
		p.comeBack(notYetAgain)
	case errors.Is(err, addon.ErrSubjectNotReady):
		p.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending, err.Error())
	case err != nil:
		p.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonSetPermissionFailed, err.Error())
		p.problems = append(p.problems, err)
	case p.options.Registration == nil:
		p.set(fleet.ConditionRegistrationApplied, metav1.ConditionTrue, fleet.ReasonNilRegistration, "The add-on does not register with the hub")
	default:
		p.set(fleet.ConditionRegistrationApplied, metav1.ConditionTrue, fleet.ReasonSetPermissionApplied,
			"Registration of the addon agent is configured")
	}
}

// refuse revokes the permissions of an add-on on a cluster that was denied: its agent runs where the agent of the cluster runs. It gets
// them back when the cluster is accepted.
func (p *pass) refuse(ctx context.Context) {
	if err := p.withdraw(ctx, client.ObjectKeyFromObject(p.addOn)); err != nil {
		p.problems = append(p.problems, err)
	}
	p.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonSetPermissionFailed,
		fmt.Sprintf("ManagedCluster %s is denied; the agent of the add-on has its rights when the cluster is accepted again", p.addOn.Namespace))
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

// chooseNamespace decides where the agent is installed. While the add-on cannot tell, the namespace stays as it was. Until the add-on
// has told once, the agent does not register: its credentials would be put into a namespace that changes. An add-on that is being
// deleted does not move.
func (p *pass) chooseNamespace(ctx context.Context) error {
	chosen := p.addOn.Status.Namespace != ""
	switch {
	case !chosen && p.awaitsConfigs():
		return addon.ErrNotYet
	case chosen && !p.addOn.DeletionTimestamp.IsZero():
		return nil
	}
	namespace := ""
	if p.options.InstallNamespace != nil {
		var err error
		namespace, err = p.options.InstallNamespace(ctx, p.installation)
		if chosen && errors.Is(err, addon.ErrNotYet) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("choose the namespace of the agent: %w", err)
		}
	}
	p.addOn.Status.Namespace = namespace
	p.addOn.Status.Namespace = p.installation.Namespace()
	return nil
}

// chooseIdentities decides the identities with which the agent registers. The agent of the cluster declares how it gets its credential.
func (p *pass) chooseIdentities(ctx context.Context) error {
	configs, err := registrations.Of(ctx, p.options.Registration, p.installation)
	if err != nil {
		return fmt.Errorf("find out what the agent registers for: %w", err)
	}
	for i := range configs {
		if configs[i].Type == addonv1beta1.KubeClient {
			registrations.Drive(&configs[i], p.before)
		}
	}
	p.addOn.Status.Registrations = configs
	return nil
}

// isRegistered tells whether the agent may register, or does not need to.
func (p *pass) isRegistered() bool {
	return meta.IsStatusConditionTrue(p.addOn.Status.Conditions, fleet.ConditionRegistrationApplied)
}
