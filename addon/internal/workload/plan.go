// Package workload determines which ManifestWorks an add-on needs on a cluster, and on its hosting cluster. It is pure: it compares the
// desired state with the present one, and returns what has to be written.
//
// # Works
//
// The objects of an add-on are spread over as many works as are needed for none to exceed Input.MaxBytes. An object stays in its work
// as long as it fits there, so that a change of one object changes one work. An object that has to move to another work also stays in
// the old one until the new one has applied it: otherwise the agent might delete it in between.
//
// # Removal
//
// When an add-on is deleted, its pre-delete hooks run first. Then its finalizers are removed, and the works of its own cluster are
// garbage-collected with their owner. Works for a hosting cluster have no owner on the hub; they are deleted before the finalizers are
// removed.
package workload

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Input is everything that a Plan depends on. It is not changed.
type Input struct {
	Options addon.Options
	// Installation is the add-on on its cluster. The cluster is nil if it does not exist.
	Installation addon.Installation
	// Workload is what the add-on consists of. It is nil if it could not be rendered, or is not to be rendered now: then the works stay
	// as they are.
	Workload *addon.Workload
	// Unrendered is why Workload is nil. If both are nil, the add-on was not rendered on purpose, and ManifestApplied stays as it is.
	Unrendered error
	// Hosting is the hosting cluster; nil in default mode, or if it does not exist.
	Hosting *clusterv1.ManagedCluster
	// CMA is the ClusterManagementAddOn; nil if it does not exist.
	CMA *addonv1beta1.ClusterManagementAddOn
	// Existing are all works of this add-on for this cluster, as package ownership determines them.
	Existing []workv1.ManifestWork
	// Dependents are the add-ons on the cluster that need this one. While there are any, an add-on that is being deleted stays as it is.
	Dependents []string
	// Closed is set if the namespace of the cluster is being deleted: nothing can be created there any more.
	Closed bool
	// MaxBytes bounds the objects in one work, in bytes of JSON. A single larger object has a work of its own. 0 is the default,
	// maxBytes.
	MaxBytes int
	Now      time.Time
}

// Plan is what has to be written. Works are created first, then updated, then deleted, in the given order.
type Plan struct {
	Create []*workv1.ManifestWork
	// Update has complete works, with the resourceVersion of the existing ones.
	Update []*workv1.ManifestWork
	Delete []*workv1.ManifestWork
	// Finalizers are those that the ManagedClusterAddOn is to have, out of the three for add-ons and their deprecated names. Missing ones
	// are added before works are created; superfluous ones are removed after the deletions. A deprecated one stays only while an object
	// that has it is being deleted: it cannot be replaced then.
	Finalizers []string
	// Conditions to set, without times.
	Conditions []metav1.Condition
	// RemoveConditions are the types of conditions to remove.
	RemoveConditions []string
	// RequeueAfter is when the add-on is due without an event; 0 is never.
	RequeueAfter time.Duration
}

// maxBytes is four fifths of 50 KiB, the size of the works of add-ons that use the addon-framework.
const maxBytes = 50 << 10 * 8 / 10

// New returns the Plan for an add-on on a cluster. It fails if an object cannot be deployed; then nothing is to be written. For an
// add-on that is being deleted, the condition of its hooks reports that error instead.
func New(in Input) (Plan, error) {
	p := &planner{Input: in}
	if p.MaxBytes <= 0 {
		p.MaxBytes = maxBytes
	}
	if err := p.read(); err != nil {
		return Plan{}, err
	}
	switch {
	case p.leaves() && p.isNeeded():
		p.stay()
	case p.leaves():
		p.remove()
	default:
		if err := p.deploy(); err != nil {
			return Plan{}, err
		}
	}
	return p.Plan, nil
}

// planner makes a plan.
type planner struct {
	Input
	Plan
	works   []*work
	objects []*object
	plurals plurals
}

// read parses the objects of the add-on and the existing works.
func (p *planner) read() (err error) {
	if name := p.Installation.AddOn.Name; len(name) > longestLabel {
		return fmt.Errorf("the name of the add-on, %q, has %d characters; choose one of no more than %d, which is what the label %s holds",
			name, len(name), longestLabel, fleet.LabelAddOnName)
	}
	if p.Workload != nil {
		p.objects, err = encode(p.Workload.Objects)
		switch {
		case err != nil && p.leaves():
			// An error must not keep the add-on from being removed once its hooks are no longer waited for.
			p.Workload, p.Unrendered = nil, err
		case err != nil:
			return err
		}
	}
	p.works = find(p.Input, p.objects)
	p.plurals = pluralsOf(p.objects, p.works)
	return nil
}

const longestLabel = 63

// leaves reports whether the add-on is being deleted.
func (p *planner) leaves() bool { return !p.Installation.AddOn.DeletionTimestamp.IsZero() }

// deploy plans the works on both clusters.
func (p *planner) deploy() error {
	managed, hosting := p.managedSide(), p.hostingSide()
	p.RemoveConditions = append(p.RemoveConditions, fleet.ConditionHookManifestCompleted)
	if err := p.deployTo(managed); err != nil {
		return err
	}
	if !p.hosted() {
		p.RemoveConditions = append(p.RemoveConditions, fleet.ConditionHostingManifestApplied, fleet.ConditionHostingClusterValidity)
	} else {
		p.Conditions = append(p.Conditions, p.validity())
		if hosting.cluster == nil || !hosting.takesNew() && len(p.worksAt(hosting)) == 0 {
			p.RemoveConditions = append(p.RemoveConditions, fleet.ConditionHostingManifestApplied)
		} else if err := p.deployTo(hosting); err != nil {
			return err
		}
	}
	p.tidy(hosting)
	p.Finalizers = p.desiredFinalizers(managed, hosting)
	return nil
}

// tidy deletes works that are no longer needed: hooks of a previous add-on of the same name, and works on a former hosting cluster. The
// latter stay while the desired state is unknown, unless the present hosting cluster is gone or being deleted.
func (p *planner) tidy(hosting side) {
	gone := p.hosted() && hosting.cluster == nil
	for _, w := range p.works {
		stray := w.Hosting && (gone || p.Workload != nil && (!p.hosted() || w.Namespace != hosting.namespace))
		if (w.Hook || stray) && w.DeletionTimestamp.IsZero() {
			p.Delete = append(p.Delete, w.ManifestWork)
		}
	}
}

// desiredFinalizers returns the finalizers of an add-on that is not being deleted.
func (p *planner) desiredFinalizers(managed, hosting side) (desired []string) {
	if p.Workload == nil {
		return p.kept(finalizers)
	}
	if len(p.at(managed, true)) > 0 {
		desired = append(desired, fleet.FinalizerAddOnPreDelete)
	}
	if hosting.cluster == nil {
		return desired
	}
	if !hosting.takesNew() {
		return append(desired, p.kept(finalizers[1:])...)
	}
	if len(p.at(hosting, true)) > 0 {
		desired = append(desired, fleet.FinalizerHostingAddOnPreDelete)
	}
	if len(p.at(hosting, false)) > 0 {
		desired = append(desired, fleet.FinalizerHostingManifestsCleanup)
	}
	return desired
}

// finalizer is one of the three finalizers, with its deprecated name.
type finalizer struct{ name, deprecated string }

var finalizers = []finalizer{
	{fleet.FinalizerAddOnPreDelete, fleet.DeprecatedFinalizerAddOnPreDelete},
	{fleet.FinalizerHostingAddOnPreDelete, fleet.DeprecatedFinalizerHostingAddOnPreDelete},
	{fleet.FinalizerHostingManifestsCleanup, fleet.DeprecatedFinalizerHostingManifestsCleanup},
}

func (f finalizer) isOn(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return slices.Contains(addOn.Finalizers, f.name) || slices.Contains(addOn.Finalizers, f.deprecated)
}

// kept returns those of the finalizers that the add-on has, under their present names.
func (p *planner) kept(of []finalizer) (names []string) {
	for _, f := range of {
		if f.isOn(p.Installation.AddOn) {
			names = append(names, f.name)
		}
	}
	return names
}

// present returns the finalizers of the add-on, out of those in Plan.Finalizers.
func (p *planner) present() (names []string) {
	for _, name := range p.Installation.AddOn.Finalizers {
		if slices.ContainsFunc(finalizers, func(f finalizer) bool { return name == f.name || name == f.deprecated }) {
			names = append(names, name)
		}
	}
	return names
}
