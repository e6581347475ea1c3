package placement

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// cluster is what the scheduler knows of a cluster. object and scores belong to the caller and are not changed.
type cluster struct {
	id   int32
	name string
	hash uint64 // of the name, for TieBreakHash

	object      *clusterv1.ManagedCluster // nil if there are only scores or decisions of the cluster
	claims      labels.Set
	allocatable [len(resourceNames)]resourceAmount
	scores      []*clusterv1alpha1.AddOnPlacementScore
}

// resourceAmount is an allocatable amount; known is false if the cluster does not report it.
type resourceAmount struct {
	value float64
	known bool
}

// resourceNames are the resources that the prioritizers ResourceAllocatable… compare.
var resourceNames = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// selectable tells whether the cluster exists, is not being deleted and was not denied. Clusters that are neither accepted nor denied are
// selectable.
func (c *cluster) selectable() bool {
	return c.object != nil && c.object.DeletionTimestamp == nil && !managedcluster.Denied(c.object)
}

func (c *cluster) labels() labels.Set {
	if c.object == nil {
		return nil
	}
	return c.object.Labels
}

func (c *cluster) taints() []clusterv1.Taint {
	if c.object == nil {
		return nil
	}
	return c.object.Spec.Taints
}

// update replaces the object; nil removes it.
func (c *cluster) update(object *clusterv1.ManagedCluster) {
	c.object, c.claims, c.allocatable = object, nil, [len(resourceNames)]resourceAmount{}
	if object == nil {
		return
	}
	if len(object.Status.ClusterClaims) > 0 {
		c.claims = make(labels.Set, len(object.Status.ClusterClaims))
	}
	for _, claim := range object.Status.ClusterClaims {
		c.claims[claim.Name] = claim.Value
	}
	for i, name := range resourceNames {
		allocatable, reported := object.Status.Allocatable[name]
		if _, whole := object.Status.Capacity[name]; reported && whole {
			c.allocatable[i] = resourceAmountOf(allocatable)
		}
	}
}

// resourceAmountOf converts a quantity. One that is out of any real range counts as unknown: normalized to it, the scores of all other
// clusters would be equal.
func resourceAmountOf(amount resource.Quantity) resourceAmount {
	const most = 1e30
	value := amount.AsApproximateFloat64()
	if math.IsNaN(value) || math.Abs(value) > most { // 0e400 is zero times infinity
		return resourceAmount{}
	}
	return resourceAmount{value: value, known: true}
}

// score returns the AddOnPlacementScore of that name; nil when there is none.
func (c *cluster) score(name string) *clusterv1alpha1.AddOnPlacementScore {
	for _, score := range c.scores {
		if score.Name == name {
			return score
		}
	}
	return nil
}

// setScore adds, replaces or, when it is nil, removes an AddOnPlacementScore.
func (c *cluster) setScore(name string, score *clusterv1alpha1.AddOnPlacementScore) {
	others := make([]*clusterv1alpha1.AddOnPlacementScore, 0, len(c.scores)+1)
	for _, other := range c.scores {
		if other.Name != name {
			others = append(others, other)
		}
	}
	if score != nil {
		others = append(others, score)
	}
	c.scores = others
}

// clusterChange says what an event has changed of a cluster.
type clusterChange struct {
	cluster    *cluster
	old        cluster // the cluster before
	labels     bool
	claims     bool
	taints     bool
	resources  bool
	selectable bool   // the result of selectable
	anyField   bool   // anything of the object: CEL expressions may read all fields
	expiry     bool   // a toleration of one of its taints, or one of its scores
	celResult  bool   // the result of CEL expressions, and nothing else
	score      string // the name of an AddOnPlacementScore; empty for none
}

func diffCluster(former cluster, present *cluster) clusterChange {
	return clusterChange{
		cluster:    present,
		old:        former,
		labels:     !maps.Equal(former.labels(), present.labels()),
		claims:     !maps.Equal(former.claims, present.claims),
		taints:     !equality.Semantic.DeepEqual(former.taints(), present.taints()),
		resources:  former.allocatable != present.allocatable,
		selectable: former.selectable() != present.selectable(),
		anyField:   former.object != present.object,
	}
}

// topologyChanged tells whether labels or claims have changed, by which clusters are divided into decision groups and topologies.
func (c clusterChange) topologyChanged() bool { return c.labels || c.claims }

// clusterCache has all clusters by id and by name. Ids are small numbers, which are used again, so that sets of clusters are bitsets.
type clusterCache struct {
	byID     []*cluster // nil where an id is free
	idByName map[string]int32
	freeIDs  []int32

	sortedByName []int32 // ids, without those of unranked
	nameRanks    []int32 // by id: the position in sortedByName
	// unranked are ids that updateRanks has yet to add to sortedByName.
	unranked []int32
}

// getOrAdd returns the cluster of a name, which it adds if it is new.
func (cc *clusterCache) getOrAdd(name string) *cluster {
	if id, known := cc.idByName[name]; known {
		return cc.byID[id]
	}
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(name))
	c := &cluster{name: name, hash: digest.Sum64()}
	if last := len(cc.freeIDs) - 1; last >= 0 {
		c.id, cc.freeIDs = cc.freeIDs[last], cc.freeIDs[:last]
		cc.byID[c.id] = c
	} else {
		c.id = index32(len(cc.byID))
		cc.byID = append(cc.byID, c)
	}
	cc.idByName[name] = c.id
	cc.unranked = append(cc.unranked, c.id)
	return c
}

// remove frees the id of a cluster that nothing refers to.
func (cc *clusterCache) remove(c *cluster) {
	cc.updateRanks()
	at, _ := slices.BinarySearchFunc(cc.sortedByName, c.name, cc.compareName)
	cc.sortedByName = slices.Delete(cc.sortedByName, at, at+1)
	delete(cc.idByName, c.name)
	cc.byID[c.id] = nil
	cc.freeIDs = append(cc.freeIDs, c.id)
}

func (cc *clusterCache) compareName(id int32, name string) int {
	return cmp.Compare(cc.byID[id].name, name)
}

// compareRanks orders clusters that have ranks by their names.
func (cc *clusterCache) compareRanks(a, b int32) int {
	return cmp.Compare(cc.nameRanks[a], cc.nameRanks[b])
}

// updateRanks gives new clusters their ranks. The order of the others does not change.
func (cc *clusterCache) updateRanks() {
	if len(cc.unranked) == 0 {
		return
	}
	const few = 16
	if len(cc.unranked) > few {
		cc.sortedByName = append(cc.sortedByName, cc.unranked...)
		slices.SortFunc(cc.sortedByName, func(a, b int32) int { return cc.compareName(a, cc.byID[b].name) })
	} else {
		for _, id := range cc.unranked {
			at, _ := slices.BinarySearchFunc(cc.sortedByName, cc.byID[id].name, cc.compareName)
			cc.sortedByName = slices.Insert(cc.sortedByName, at, id)
		}
	}
	cc.unranked = cc.unranked[:0]
	cc.nameRanks = slices.Grow(cc.nameRanks[:0], len(cc.byID))[:len(cc.byID)]
	for rank, id := range cc.sortedByName {
		cc.nameRanks[id] = index32(rank)
	}
}
