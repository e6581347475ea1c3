package placement

import (
	"cmp"
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
	name  string
	hash  uint64 // of the name, for TieBreakHash
	index int    // in the results of celEvaluations; another cluster may have it once this one is removed

	sets      []*clusterSet // those that it is a member of; never changed in place, as a clusterChange has the former ones
	decisions int           // number of decisions that name it, of all placements in all namespaces

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

// selectable reports whether the cluster exists, is not being deleted and was not denied. Clusters that are neither accepted nor denied are
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
	if at := slices.IndexFunc(c.scores, func(score *clusterv1alpha1.AddOnPlacementScore) bool { return score.Name == name }); at >= 0 {
		return c.scores[at]
	}
	return nil
}

// setScore adds, replaces or, when it is nil, removes an AddOnPlacementScore.
func (c *cluster) setScore(name string, score *clusterv1alpha1.AddOnPlacementScore) {
	others := slices.DeleteFunc(slices.Clone(c.scores), func(other *clusterv1alpha1.AddOnPlacementScore) bool { return other.Name == name })
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

// topologyChanged reports whether labels or claims have changed, by which clusters are divided into decision groups and topologies.
func (c clusterChange) topologyChanged() bool { return c.labels || c.claims }

// clusterCache has all clusters.
type clusterCache struct {
	byName      map[string]*cluster
	sorted      []*cluster // by name
	freeIndexes []int
}

// get returns the cluster of a name; nil when there is none.
func (cc *clusterCache) get(name string) *cluster { return cc.byName[name] }

// getOrAdd returns the cluster of a name, which it adds if it is new.
func (cc *clusterCache) getOrAdd(name string) *cluster {
	if c := cc.byName[name]; c != nil {
		return c
	}
	c := &cluster{name: name, hash: hashOf(name), index: len(cc.sorted)}
	if last := len(cc.freeIndexes) - 1; last >= 0 {
		c.index, cc.freeIndexes = cc.freeIndexes[last], cc.freeIndexes[:last]
	}
	at, _ := slices.BinarySearchFunc(cc.sorted, c, compareNames)
	cc.sorted = slices.Insert(cc.sorted, at, c)
	cc.byName[name] = c
	return c
}

// remove removes a cluster that nothing refers to.
func (cc *clusterCache) remove(c *cluster) {
	at, _ := slices.BinarySearchFunc(cc.sorted, c, compareNames)
	cc.sorted = slices.Delete(cc.sorted, at, at+1)
	delete(cc.byName, c.name)
	cc.freeIndexes = append(cc.freeIndexes, c.index)
}

func compareNames(a, b *cluster) int { return cmp.Compare(a.name, b.name) }
