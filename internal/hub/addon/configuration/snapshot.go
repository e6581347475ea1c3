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
	// kept is true if the configurations stay as they are.
	kept  bool
	phase rollout.ClusterPhase
}

// placementRollout is how far the clusters of a placement are.
type placementRollout struct {
	*lookup.Placement
	references []addonv1beta1.InstallConfigReference
	plan       rollout.Plan
	// configured is how many clusters have the add-on.
	configured int
	problems   []string
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
	// While it is not known what a placement selects, it may select this cluster: the present configurations may be updated, but not
	// replaced by others.
	cluster.kept = !lookup.AllResolved(s.placements) && cluster.changesConfigs()
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
	r.configured, r.problems = 0, nil
	for _, selected := range r.Selected {
		cluster := s.states[selected.Name]
		if cluster.placement != r.Placement {
			continue
		}
		switch {
		case cluster.addOn == nil && !lookup.Installable(s.clusters[selected.Name]):
			continue // it will not be installed there
		case cluster.addOn != nil && !cluster.addOn.DeletionTimestamp.IsZero():
			continue // it is being deleted
		case cluster.keepsConfigs():
			selected.State = rollout.Skip
		default:
			selected.State, selected.Since = stateOf(cluster.addOn, cluster.desired, s.now)
		}
		if cluster.addOn != nil {
			r.configured++
		}
		if cluster.problem != nil && !slices.Contains(r.problems, cluster.problem.Error()) {
			r.problems = append(r.problems, cluster.problem.Error())
		}
		clusters = append(clusters, selected)
	}
	r.plan = rollout.Decide(rollout.Input{
		Strategy: r.RolloutStrategy, DefaultMaxConcurrency: r.ClustersPerDecisionGroup, Clusters: clusters, Now: s.now,
	})
	for _, planned := range r.plan.Clusters {
		s.states[planned.Name].phase = planned.Phase
	}
	s.requeueBy(r.plan.Next)
}

// keepsConfigs reports whether the cluster keeps its configurations.
func (c *clusterState) keepsConfigs() bool { return c.problem != nil || c.kept }

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
