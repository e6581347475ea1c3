package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/healthprobe"
	"github.com/capstan-io/capstan/addon/internal/registrations"
	"github.com/capstan-io/capstan/addon/internal/workload"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/acceptance"
	addonconfig "github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/addon/dependencies"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// notYetAgain is when an add-on that could not tell yet is asked again at the latest, a safety net: what it waits for is watched, but
// a cache does not always tell of what has changed without a new resource version, as by another definition of a kind.
const notYetAgain = 10 * time.Minute

// pass is one reconcile of an add-on.
type pass struct {
	*Controller
	agent   addon.Agent
	options addon.Options

	// before is the add-on as it was read, addOn with what is found out about it.
	before, addOn *addonv1beta1.ManagedClusterAddOn
	// installation holds addOn.
	installation addon.Installation
	// hosting is the cluster on which the agent is to run in hosted mode; nil if there is none of the name.
	hosting *clusterv1.ManagedCluster
	// catalogueEntry is its ClusterManagementAddOn; nil if there is none.
	catalogueEntry *addonv1beta1.ClusterManagementAddOn
	// works are those of the add-on.
	works []workv1.ManifestWork

	// finalizers are those that the add-on needs from now on.
	finalizers []string
	// problems are what could not be done; it is tried again.
	problems []error
	// after is when something is due without an event; 0 is never.
	after time.Duration
}

// look reads what the add-on depends on.
func (p *pass) look(ctx context.Context) (err error) {
	cluster, err := p.cluster(ctx, p.addOn.Namespace)
	if err != nil {
		return err
	}
	p.installation = catalogue.Installation(p.agent, cluster, p.addOn)
	hosting := p.installation.HostingCluster
	p.hosted.note(client.ObjectKeyFromObject(p.addOn), hosting)
	if hosting != "" {
		if p.hosting, err = p.cluster(ctx, hosting); err != nil {
			return err
		}
	}
	entry := &addonv1beta1.ClusterManagementAddOn{}
	switch err := p.client.Get(ctx, client.ObjectKey{Name: p.addOn.Name}, entry); {
	case err == nil:
		p.catalogueEntry = entry
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get ClusterManagementAddOn %s: %w", p.addOn.Name, err)
	}
	p.works, err = p.worksOf(ctx, client.ObjectKeyFromObject(p.addOn))
	return err
}

// abandon lets an add-on go that is being deleted and whose cluster does not exist any more: nobody is left to run its
// hooks. Before that, there is nothing to do without a cluster.
func (p *pass) abandon(ctx context.Context) error {
	if p.addOn.DeletionTimestamp.IsZero() {
		return nil
	}
	for i := range p.works {
		if err := p.remove(ctx, &p.works[i]); err != nil {
			return err
		}
	}
	return p.release(ctx)
}

// register says what the agent registers for, and gives it its rights.
func (p *pass) register(ctx context.Context) {
	status := &p.addOn.Status
	status.SupportedConfigs = supported(p.options)
	err := p.chooseNamespace(ctx)
	if err == nil {
		err = p.chooseIdentities(ctx)
	}
	switch {
	case acceptance.Denied(p.installation.Cluster):
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

// refuse leaves an add-on of a cluster that was denied no rights: its agent is where the agent of the cluster is. It gets them back with
// the acceptance of the cluster.
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

// chooseNamespace decides where the agent is installed. One that cannot be told now stays as it was. Until there is one, the
// agent does not even register: it would in a namespace that it leaves again. In a removal nothing moves.
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

// chooseIdentities decides as whom the agent registers. How it gets its credential is the agent's of the cluster to say.
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

// deploy brings the add-on to its cluster through works, or takes it away.
func (p *pass) deploy(ctx context.Context) {
	in := workload.Input{
		Options: p.options, Installation: p.installation, Hosting: p.hosting, CMA: p.catalogueEntry,
		Existing: p.works, Now: p.Clock.Now(),
	}
	// The agent of the cluster has to know it, whatever fails below: it makes the credentials where it is told that the agent runs.
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
	plan, err := workload.New(in)
	if err != nil {
		p.set(fleet.ConditionManifestApplied, metav1.ConditionFalse, fleet.ReasonManifestWorkApplyFailed, err.Error())
		p.problems, p.finalizers = append(p.problems, err), p.addOn.Finalizers
		return
	}
	if len(dependents) > 0 && !slices.Contains(plan.Finalizers, fleet.FinalizerAddOnPreDelete) && p.addOn.DeletionTimestamp.IsZero() {
		plan.Finalizers = append(plan.Finalizers, fleet.FinalizerAddOnPreDelete) // without it, it would be gone before them
	}
	p.finalizers = plan.Finalizers
	p.comeBack(plan.RequeueAfter)
	for _, condition := range plan.Conditions {
		p.set(condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	for _, kind := range plan.RemoveConditions {
		meta.RemoveStatusCondition(&p.addOn.Status.Conditions, kind)
	}
	switch {
	case errors.Is(in.Unrendered, config.ErrMissing): // it comes back with the configuration
		p.comeBack(notYetAgain)
	case in.Unrendered != nil:
		p.problems = append(p.problems, in.Unrendered)
	}
	if err := p.carryOut(ctx, plan); err != nil {
		p.problems, p.finalizers = append(p.problems, err), p.addOn.Finalizers
		if !apierrors.IsConflict(err) {
			p.tellUnwritten(err)
		}
	}
}

// tellUnwritten says what could not be done of a plan, of the cluster that it was for.
func (p *pass) tellUnwritten(err error) {
	if of := new(workError); errors.As(err, &of) {
		condition := workload.Unwritten(client.ObjectKeyFromObject(p.addOn), of.work, err)
		p.set(condition.Type, condition.Status, condition.Reason, condition.Message)
		return
	}
	p.set(fleet.ConditionManifestApplied, metav1.ConditionFalse, fleet.ReasonManifestWorkApplyFailed, err.Error())
}

// dependencies are the add-ons that have to be available before this one is deployed, and those that have to be gone before it
// is removed.
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

// render asks the add-on for its manifests, if it is time for that: nil, and no error, if it is not.
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
		// The hub has said so in its condition. Of an add-on that leaves it says nothing, and the hooks are waited for.
		!leaving && errors.Is(err, config.ErrMissing) && meta.IsStatusConditionFalse(p.addOn.Status.Conditions, fleet.ConditionConfigured):
		p.comeBack(notYetAgain)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("make the manifests of the add-on %s for the cluster %s: %w", p.addOn.Name, p.addOn.Namespace, err)
	case rendered == nil:
		return nil, fmt.Errorf("the add-on %s has returned neither a Workload for the cluster %s nor an error: return an empty Workload if the cluster is to have nothing",
			p.addOn.Name, p.addOn.Namespace)
	}
	return rendered, nil
}

// isRegistered tells whether the agent has what it needs to register, or does not register.
func (p *pass) isRegistered() bool {
	return meta.IsStatusConditionTrue(p.addOn.Status.Conditions, fleet.ConditionRegistrationApplied)
}

// awaitsConfigs tells whether the add-on has still to be given configurations: one that they are announced to, or that the hub
// has not looked at. One that has been given some goes on with them until it gets others. One that leaves does not hear of it
// any more.
func (p *pass) awaitsConfigs() bool {
	if len(p.options.Configs) == 0 || !p.addOn.DeletionTimestamp.IsZero() {
		return false
	}
	references := p.addOn.Status.ConfigReferences
	if slices.ContainsFunc(references, func(r addonv1beta1.ConfigReference) bool { return addonconfig.IsPending(r) && p.reads(r) }) {
		return true
	}
	return p.hubConfigures() && len(references) == 0 && !meta.IsStatusConditionTrue(p.addOn.Status.Conditions, fleet.ConditionConfigured)
}

// hubConfigures tells whether the hub says which configurations the add-on has.
func (p *pass) hubConfigures() bool {
	return p.catalogueEntry != nil && !addon.SelfManaged(p.catalogueEntry)
}

// reads tells whether the add-on may read a configuration.
func (p *pass) reads(reference addonv1beta1.ConfigReference) bool {
	return slices.ContainsFunc(p.options.Configs, func(kind schema.GroupVersionResource) bool {
		return kind.Group == reference.Group && kind.Resource == reference.Resource
	})
}

// configuredTimeout is how long the hub may take to set Configured before that is told of. Mostly it does so at once, and a write for each
// add-on would be in vain.
const configuredTimeout = 10 * time.Second

// tellOfConfigs says that the configurations are waited for, unless the hub has said itself what about them is amiss.
func (p *pass) tellOfConfigs() {
	if meta.FindStatusCondition(p.addOn.Status.Conditions, fleet.ConditionConfigured) != nil {
		return
	}
	since := p.addOn.CreationTimestamp.Time
	if p.catalogueEntry != nil && p.catalogueEntry.CreationTimestamp.After(since) {
		since = p.catalogueEntry.CreationTimestamp.Time
	}
	if left := since.Add(configuredTimeout).Sub(p.Clock.Now()); left > 0 {
		p.comeBack(left)
		return
	}
	message := "The add-on is registered and deployed when all of its status.configReferences have a specHash: nobody has set that yet"
	if p.hubConfigures() {
		message = fmt.Sprintf("The add-on is registered and deployed when its condition %s is %s: the hub sets it, by the ClusterManagementAddOn %s, once it knows the configurations",
			fleet.ConditionConfigured, metav1.ConditionTrue, p.catalogueEntry.Name)
	}
	p.set(fleet.ConditionRegistrationApplied, metav1.ConditionFalse, fleet.ReasonPermissionConfigPending, message)
}

// comeBack after no longer than that.
func (p *pass) comeBack(after time.Duration) {
	if after > 0 && (p.after == 0 || after < p.after) {
		p.after = after
	}
}

// judge says whether the agent works, where that is the manager's to say.
func (p *pass) judge() {
	condition, mode := healthprobe.Condition(healthprobe.Input{Options: p.options, Installation: p.installation, Works: p.works})
	p.addOn.Status.HealthCheck.Mode = mode
	if condition != nil {
		p.set(condition.Type, condition.Status, condition.Reason, condition.Message)
	}
}

// set sets a condition. The time is that of the change.
func (p *pass) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.addOn.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: p.addOn.Generation, LastTransitionTime: metav1.NewTime(p.Clock.Now()),
	})
}

// ours are the finalizers by which a manager holds an add-on, with those of older managers.
var ours = []string{
	fleet.FinalizerAddOnPreDelete, fleet.FinalizerHostingAddOnPreDelete, fleet.FinalizerHostingManifestsCleanup,
	fleet.DeprecatedFinalizerAddOnPreDelete, fleet.DeprecatedFinalizerHostingAddOnPreDelete, fleet.DeprecatedFinalizerHostingManifestsCleanup,
}

// hold adds the finalizers that are missing. An add-on that is being deleted cannot get new ones.
func (p *pass) hold(ctx context.Context, finalizers []string) error {
	if !p.addOn.DeletionTimestamp.IsZero() {
		return nil
	}
	held := p.before.DeepCopy()
	for _, f := range finalizers {
		if !slices.Contains(held.Finalizers, f) {
			held.Finalizers = append(held.Finalizers, f)
		}
	}
	changed, err := patch.Object(ctx, p.client, held, p.before)
	if !changed || err != nil {
		return err
	}
	p.before = held
	p.addOn.Finalizers, p.addOn.ResourceVersion = slices.Clone(held.Finalizers), held.ResourceVersion
	return nil
}

// release removes those of our finalizers that the add-on does not need any more.
func (p *pass) release(ctx context.Context) error {
	before := p.addOn.DeepCopy()
	p.addOn.Finalizers = slices.DeleteFunc(p.addOn.Finalizers, func(f string) bool {
		return slices.Contains(ours, f) && !slices.Contains(p.finalizers, f)
	})
	_, err := patch.Object(ctx, p.client, p.addOn, before)
	return client.IgnoreNotFound(err)
}

// keyOf is the ManagedClusterAddOn that an object on the hub is labelled to belong to.
func keyOf(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetLabels()[fleet.LabelClusterName], Name: o.GetLabels()[fleet.LabelAddOnName]}
}
