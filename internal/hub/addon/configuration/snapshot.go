package configuration

import (
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/hashes"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// snapshot is an add-on and everything that belongs to it, at one time.
type snapshot struct {
	entry      *addonv1beta1.ClusterManagementAddOn
	placements []*lookup.Placement
	installed  map[string]*addonv1beta1.ManagedClusterAddOn // By cluster, as are the next two.
	clusters   map[string]*clusterv1.ManagedCluster
	states     map[string]*clusterState
	defaults   []addonv1beta1.DefaultConfigReference
	rollouts   []*placementRollout // One for each of placements.

	configs Known
	known   map[addonv1beta1.AddOnConfig]known
	// notYet is true if the states of some configurations are still being listed.
	notYet bool
	now    time.Time
	// next is when the add-on is due without an event. Zero is never.
	next time.Time
}

// known is the state of a configuration, or why it is not known.
type known struct {
	hashes.State
	err error
}

// clusterState is the present and the desired state of the add-on on a cluster.
type clusterState struct {
	addOn *addonv1beta1.ManagedClusterAddOn // nil if it is still to be installed
	// placement is the one that applies; nil if none selects the cluster.
	placement *lookup.Placement
	desired   []addonv1beta1.ConfigReference
	// problem is why the desired configurations cannot be used.
	problem error
	// missing is true if the add-on has been missing for so long that the rollout does not wait for it any more.
	missing bool
	// kept is true if the configurations stay as they are.
	kept bool
	// undecided is why they do, if it is not known which placement applies.
	undecided string
	phase     rollout.ClusterPhase
}

// placementRollout is how far the clusters of a placement are.
type placementRollout struct {
	*lookup.Placement
	references []addonv1beta1.InstallConfigReference
	plan       rollout.Plan
	// configured is how many clusters have the add-on.
	configured int
	// missing are the clusters that are left out because they do not have it. Of mandatory groups, some are awaited nevertheless.
	missing, awaited []string
	// held are those that keep their configurations, and that mandatory groups wait for.
	held     []string
	problems []string
}

// requiredConfigs returns all configurations that the add-on or a placement refers to.
func (s *snapshot) requiredConfigs() map[addonv1beta1.AddOnConfig]bool {
	all := setOf(s.entry.Spec.DefaultConfigs)
	add := func(configs []addonv1beta1.AddOnConfig) {
		for _, config := range configs {
			if config.Name != addonv1beta1.ReservedNoDefaultConfigName {
				all[config] = true
			}
		}
	}
	for _, placement := range s.placements {
		add(placement.Configs)
	}
	for _, addOn := range s.installed {
		add(addOn.Spec.Configs)
	}
	return all
}

func setOf(configs []addonv1beta1.AddOnConfig) map[addonv1beta1.AddOnConfig]bool {
	set := make(map[addonv1beta1.AddOnConfig]bool, len(configs))
	for _, config := range configs {
		if config.Name != addonv1beta1.ReservedNoDefaultConfigName {
			set[config] = true
		}
	}
	return set
}

// resolve returns the state of a configuration. It reads each only once.
func (s *snapshot) resolve(config addonv1beta1.AddOnConfig) known {
	found, done := s.known[config]
	if !done {
		found.State, found.err = s.configs.Of(config)
		s.notYet = s.notYet || errors.Is(found.err, hashes.ErrNotYet)
		if found.err != nil {
			s.requeueBy(s.now.Add(problemWait))
		}
		s.known[config] = found
	}
	return found
}

// readDefaults reads the default configurations. For add-ons that manage themselves the hub does no more.
func (s *snapshot) readDefaults() {
	for _, config := range config.Effective(s.entry.Spec.DefaultConfigs) {
		s.defaults = append(s.defaults, addonv1beta1.DefaultConfigReference{
			ConfigGroupResource: config.ConfigGroupResource,
			DesiredConfig:       &addonv1beta1.ConfigSpecHash{ConfigReferent: config.ConfigReferent, SpecHash: s.resolve(config).Hash},
		})
	}
}

// assign determines which placement applies on each cluster, and which configurations follow.
func (s *snapshot) assign() {
	decisive := lookup.Decisive(s.placements)
	s.states = make(map[string]*clusterState, len(s.installed))
	for cluster, addOn := range s.installed {
		s.states[cluster] = &clusterState{addOn: addOn, placement: decisive[cluster]}
	}
	for cluster, placement := range decisive {
		if s.states[cluster] == nil {
			s.states[cluster] = &clusterState{placement: placement}
		}
	}
	for _, cluster := range s.states {
		s.choose(cluster)
	}
	for _, placement := range s.placements {
		s.rollouts = append(s.rollouts, &placementRollout{Placement: placement, references: s.installReferences(placement)})
	}
}

// onlyNew skips the add-ons that have been configured before.
func (s *snapshot) onlyNew() {
	maps.DeleteFunc(s.states, func(_ string, cluster *clusterState) bool {
		return cluster.addOn == nil || meta.FindStatusCondition(cluster.addOn.Status.Conditions, fleet.ConditionConfigured) != nil
	})
}

// choose determines the configurations for a cluster. Configurations of a type that the add-on does not support are ignored, except for
// defaults.
func (s *snapshot) choose(cluster *clusterState) {
	layers := [][]addonv1beta1.AddOnConfig{s.entry.Spec.DefaultConfigs, nil, nil}
	if cluster.placement != nil {
		layers[1] = cluster.placement.Configs
	}
	if cluster.addOn != nil {
		layers[2] = cluster.addOn.Spec.Configs
		if progress.ListsSupportedConfigs(cluster.addOn) {
			layers[1], _ = config.Supported(layers[1], cluster.addOn.Status.SupportedConfigs)
			layers[2], _ = config.Supported(layers[2], cluster.addOn.Status.SupportedConfigs)
		}
	}
	for _, config := range config.Effective(layers...) {
		found := s.resolve(config)
		if found.err != nil && cluster.problem == nil {
			cluster.problem = found.err
		}
		cluster.desired = append(cluster.desired, addonv1beta1.ConfigReference{
			ConfigGroupResource:    config.ConfigGroupResource,
			LastObservedGeneration: found.Generation,
			DesiredConfig:          &addonv1beta1.ConfigSpecHash{ConfigReferent: config.ConfigReferent, SpecHash: found.Hash},
		})
	}
	s.keepWhileUndecided(cluster)
}

// keepWhileUndecided keeps the configurations of a cluster while another placement may turn out to apply on it: the present ones may be
// updated, but not replaced by others.
func (s *snapshot) keepWhileUndecided(cluster *clusterState) {
	unresolved := lookup.Unresolved(s.placements, cluster.placement)
	if unresolved == nil || !cluster.changesConfigs() {
		return
	}
	cluster.kept = true
	cluster.undecided = "No other configurations yet, as it is not known whether this placement gives others: " + unresolved.Unknown
}

// changesConfigs reports whether the cluster has configurations and is to get others.
func (c *clusterState) changesConfigs() bool {
	if c.addOn == nil || len(c.addOn.Status.ConfigReferences) == 0 {
		return false
	}
	return !slices.EqualFunc(c.addOn.Status.ConfigReferences, c.desired, func(a, b addonv1beta1.ConfigReference) bool {
		return a.ConfigGroupResource == b.ConfigGroupResource && a.DesiredConfig != nil &&
			a.DesiredConfig.ConfigReferent == b.DesiredConfig.ConfigReferent
	})
}

// decide computes the rollout of each placement separately, because each has its own strategy. Clusters of no placement get their
// configurations at once.
func (s *snapshot) decide() {
	for _, r := range s.rollouts {
		s.decideFor(r)
	}
	for _, cluster := range s.states {
		if cluster.placement == nil {
			cluster.phase = rollout.Start
			if cluster.keepsConfigs() {
				cluster.phase = rollout.Skipped
			}
		}
	}
}

func (s *snapshot) decideFor(r *placementRollout) {
	var clusters []rollout.Cluster
	r.configured, r.missing, r.awaited, r.held, r.problems = 0, nil, nil, nil, nil
	for _, selected := range r.Selected {
		cluster := s.states[selected.Name]
		if cluster.placement != r.Placement {
			continue
		}
		switch {
		case !cluster.hasAddOn() && !lookup.Installable(s.clusters[selected.Name]):
			continue // it will not be installed there
		case cluster.missing, cluster.addOn != nil && !cluster.hasAddOn(), cluster.keepsConfigs():
			selected.State = rollout.Absent
		default:
			selected.State, selected.Since = stateOf(cluster.addOn, cluster.desired)
		}
		if cluster.hasAddOn() {
			r.configured++
		}
		if why := cluster.held(); why != "" && !slices.Contains(r.problems, why) {
			r.problems = append(r.problems, why)
		}
		clusters = append(clusters, selected)
	}
	r.plan = rollout.Decide(rollout.Input{
		Strategy: r.RolloutStrategy, DefaultMaxConcurrency: r.ClustersPerDecisionGroup, Clusters: clusters, Now: s.now,
	})
	for _, planned := range r.plan.Clusters {
		cluster := s.states[planned.Name]
		cluster.phase = planned.Phase
		switch {
		case cluster.missing && cluster.phase == rollout.Skipped:
			r.missing = append(r.missing, planned.Name)
		case cluster.missing:
			r.awaited = append(r.awaited, planned.Name)
		case cluster.keepsConfigs() && cluster.phase == rollout.Waiting:
			r.held = append(r.held, planned.Name)
		}
	}
	s.requeueBy(r.plan.Next)
}

// hasAddOn reports whether the cluster has the add-on, and is to have it any longer.
func (c *clusterState) hasAddOn() bool { return c.addOn != nil && c.addOn.DeletionTimestamp.IsZero() }

// keepsConfigs reports whether the cluster keeps its configurations.
func (c *clusterState) keepsConfigs() bool { return c.problem != nil || c.kept }

// held returns why the cluster does not get its desired configurations, if it is not for the rollout that it waits.
func (c *clusterState) held() string {
	if c.problem != nil {
		return c.problem.Error()
	}
	return c.undecided
}

// requeueBy makes the add-on due at that time at the latest.
func (s *snapshot) requeueBy(then time.Time) {
	if !then.IsZero() && (s.next.IsZero() || then.Before(s.next)) {
		s.next = then
	}
}

// wait returns how long it is until the add-on is due.
func (s *snapshot) wait() time.Duration {
	if s.next.IsZero() {
		return longestWait
	}
	return min(max(s.next.Sub(s.now), time.Millisecond), longestWait)
}
