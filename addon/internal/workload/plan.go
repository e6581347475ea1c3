// Package workload says which ManifestWorks an add-on needs on a cluster, and on its hosting cluster. It is
// pure: it compares what is to be with what is, and returns what has to be written.
//
// # Works
//
// The objects of an add-on are spread over as many works as it takes for none to hold more than Input.MaxBytes. An
// object stays in the work in which it is, as long as it fits there, so that a change of one object is a change of one work. An
// object that has to move to another work stays in the one it leaves until the other one has applied it: otherwise the agent
// might delete it in between.
//
// # Removal
//
// When an add-on is deleted, its pre-delete hooks run first, then its finalizers go, and the works of its own cluster with it,
// by their owner reference. What is on a hosting cluster has no owner on the hub, and is deleted before.
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

// Input is everything a Plan depends on. Nothing of it is changed.
type Input struct {
	Options addon.Options
	// Installation is the add-on on its cluster. Its cluster is nil if there is none of that name.
	Installation addon.Installation
	// Workload is what the add-on consists of. It is nil if it could not be rendered, or must not be now: then the works stay
	// as they are.
	Workload *addon.Workload
	// Unrendered is why Workload is nil. If it is nil, too, that is so on purpose, and ManifestApplied is left alone.
	Unrendered error
	// Hosting is the hosting cluster; nil in default mode, or if there is none of that name.
	Hosting *clusterv1.ManagedCluster
	// CMA is the ClusterManagementAddOn; nil if there is none.
	CMA *addonv1beta1.ClusterManagementAddOn
	// Existing are all works of this add-on for this cluster: those that Owner says are.
	Existing []workv1.ManifestWork
	// Dependents are the add-ons on the cluster that need this one. As long as there are any, one that is being deleted stays as it is.
	Dependents []string
	// MaxBytes of objects, as JSON, are in one work at most, if there is more than one object in it; 0 is the
	// default, maxBytes.
	MaxBytes int
	Now      time.Time
}

// Plan is what is to be written. Works are created first, then updated, then deleted, in the given order.
type Plan struct {
	Create []*workv1.ManifestWork
	// Update has whole works, with the resourceVersion of the existing ones.
	Update []*workv1.ManifestWork
	Delete []*workv1.ManifestWork
	// Finalizers are those that the ManagedClusterAddOn is to have, of the three for add-ons and their deprecated twins. What
	// it lacks is added before works are created, what it has beyond that is removed after the deletions. A deprecated one is
	// among them only while an object that has it is being deleted: its successor cannot be added then.
	Finalizers []string
	// Conditions to set, without times.
	Conditions []metav1.Condition
	// RemoveConditions are the types of conditions to remove.
	RemoveConditions []string
	// RequeueAfter is when the time alone changes something; 0 is never.
	RequeueAfter time.Duration
}

// maxBytes is four fifths of 50 KiB, the size of the works that add-ons of the original framework make.
const maxBytes = 50 << 10 * 8 / 10

// New plans what is to be written for an add-on on a cluster. It fails if an object cannot be deployed; then nothing is to be
// written. In a removal, the condition of the hooks tells of it instead.
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

// read takes the objects of the add-on, and the works that there are, apart.
func (p *planner) read() (err error) {
	if name := p.Installation.AddOn.Name; len(name) > longestLabel {
		return fmt.Errorf("the name of the add-on, %q, has %d characters; choose one of no more than %d, which is what the label %s holds",
			name, len(name), longestLabel, fleet.LabelAddOnName)
	}
	if p.Workload != nil {
		p.objects, err = encode(p.Workload.Objects)
		switch {
		case err != nil && p.leaves():
			// It must not keep the add-on from being removed when its hooks are waited for no longer.
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

// leaves tells whether the add-on is being deleted.
func (p *planner) leaves() bool { return !p.Installation.AddOn.DeletionTimestamp.IsZero() }

// deploy brings the add-on to its clusters.
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
		if hosting.cluster == nil {
			p.RemoveConditions = append(p.RemoveConditions, fleet.ConditionHostingManifestApplied)
		} else if err := p.deployTo(hosting); err != nil {
			return err
		}
	}
	p.tidy(hosting)
	p.Finalizers = p.wantedFinalizers(managed, hosting)
	return nil
}

// tidy deletes works that are of no use any more: hooks of an add-on that was removed before, and what is on a cluster that hosts
// the agent no longer. While it is not known what comes in its place that stays, unless its cluster goes.
func (p *planner) tidy(hosting side) {
	gone := p.hosted() && hosting.cluster == nil
	for _, w := range p.works {
		stray := w.Hosting && (gone || p.Workload != nil && (!p.hosted() || w.Namespace != hosting.namespace))
		if (w.Hook || stray) && w.DeletionTimestamp.IsZero() {
			p.Delete = append(p.Delete, w.ManifestWork)
		}
	}
}

// wantedFinalizers of an add-on that is not being deleted.
func (p *planner) wantedFinalizers(managed, hosting side) (wanted []string) {
	if p.Workload == nil {
		for _, f := range finalizers {
			if f.isOn(p.Installation.AddOn) {
				wanted = append(wanted, f.name)
			}
		}
		return wanted
	}
	if len(p.at(managed, true)) > 0 {
		wanted = append(wanted, fleet.FinalizerAddOnPreDelete)
	}
	if hosting.cluster == nil {
		return wanted
	}
	if len(p.at(hosting, true)) > 0 {
		wanted = append(wanted, fleet.FinalizerHostingAddOnPreDelete)
	}
	if len(p.at(hosting, false)) > 0 {
		wanted = append(wanted, fleet.FinalizerHostingManifestsCleanup)
	}
	return wanted
}

// finalizer is one of the three, and what older add-ons call it.
type finalizer struct{ name, deprecated string }

var finalizers = []finalizer{
	{fleet.FinalizerAddOnPreDelete, fleet.DeprecatedFinalizerAddOnPreDelete},
	{fleet.FinalizerHostingAddOnPreDelete, fleet.DeprecatedFinalizerHostingAddOnPreDelete},
	{fleet.FinalizerHostingManifestsCleanup, fleet.DeprecatedFinalizerHostingManifestsCleanup},
}

func (f finalizer) isOn(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return slices.Contains(addOn.Finalizers, f.name) || slices.Contains(addOn.Finalizers, f.deprecated)
}

// present are the finalizers that the add-on has, of those that count here.
func (p *planner) present() (names []string) {
	for _, name := range p.Installation.AddOn.Finalizers {
		if slices.ContainsFunc(finalizers, func(f finalizer) bool { return name == f.name || name == f.deprecated }) {
			names = append(names, name)
		}
	}
	return names
}
