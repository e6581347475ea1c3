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
	"github.com/capstan-io/capstan/internal/machinery/acceptance"
)

// cluster is what placements look at. Its object and its scores are those of the caller and never written to.
type cluster struct {
	id   int32
	name string
	hash uint64 // of the name, for TieBreakHash

	object    *clusterv1.ManagedCluster // nil while only scores or decisions name the cluster
	claims    labels.Set
	resources [len(resourceNames)]measure
	scores    []*clusterv1alpha1.AddOnPlacementScore // few
}

// measure is an amount that a cluster reports, or not.
type measure struct {
	value float64
	known bool
}

// resourceNames are what the prioritizers ResourceAllocatable… compare, by their index.
var resourceNames = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// selectable clusters exist, are to stay, and have not been denied. Those that nobody has decided on are selected as the accepted ones are.
func (c *cluster) selectable() bool {
	return c.object != nil && c.object.DeletionTimestamp == nil && !acceptance.Denied(c.object)
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

// describe takes over what an object says.
func (c *cluster) describe(object *clusterv1.ManagedCluster) {
	c.object, c.claims, c.resources = object, nil, [len(resourceNames)]measure{}
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
			c.resources[i] = measured(allocatable)
		}
	}
}

// measured is an amount, unless it is beyond all measure: next to it, all other clusters would count for nothing.
func measured(amount resource.Quantity) measure {
	const most = 1e30
	value := amount.AsApproximateFloat64()
	if math.IsNaN(value) || math.Abs(value) > most { // 0e400 is zero times infinity
		return measure{}
	}
	return measure{value: value, known: true}
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

// change says which parts of a cluster an event has changed.
type change struct {
	cluster   *cluster
	former    cluster // as it was
	labels    bool
	claims    bool
	taints    bool
	resources bool
	existence bool   // whether it is selectable
	object    bool   // anything at all of the object, which is what CEL may look at
	time      bool   // what it has may have expired
	evaluated bool   // only what is known about it by CEL
	score     string // the name of an AddOnPlacementScore
}

func compare(former cluster, present *cluster) change {
	return change{
		cluster:   present,
		former:    former,
		labels:    !maps.Equal(former.labels(), present.labels()),
		claims:    !maps.Equal(former.claims, present.claims),
		taints:    !equality.Semantic.DeepEqual(former.taints(), present.taints()),
		resources: former.resources != present.resources,
		existence: former.selectable() != present.selectable(),
		object:    former.object != present.object,
	}
}

// topology tells whether what divides clusters into groups and topologies has changed.
func (c change) topology() bool { return c.labels || c.claims }

// roster is all clusters, by id, by name and in the order of their names.
type roster struct {
	clusters []*cluster // by id; nil where an id is free
	ids      map[string]int32
	free     []int32

	sorted []int32 // ids by name, but for those of pending
	ranks  []int32 // by id: orders like sorted
	// pending have no rank yet.
	pending []int32
}

// intern returns the cluster of that name, known or not.
func (r *roster) intern(name string) *cluster {
	if id, known := r.ids[name]; known {
		return r.clusters[id]
	}
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(name))
	c := &cluster{name: name, hash: digest.Sum64()}
	if last := len(r.free) - 1; last >= 0 {
		c.id, r.free = r.free[last], r.free[:last]
		r.clusters[c.id] = c
	} else {
		c.id = int32(len(r.clusters))
		r.clusters = append(r.clusters, c)
	}
	r.ids[name] = c.id
	r.pending = append(r.pending, c.id)
	return c
}

// forget frees the id of a cluster that nothing refers to.
func (r *roster) forget(c *cluster) {
	r.order()
	at, _ := slices.BinarySearchFunc(r.sorted, c.name, r.byName)
	r.sorted = slices.Delete(r.sorted, at, at+1)
	delete(r.ids, c.name)
	r.clusters[c.id] = nil
	r.free = append(r.free, c.id)
}

func (r *roster) byName(id int32, name string) int { return cmp.Compare(r.clusters[id].name, name) }

// order gives clusters that are new their ranks. No two clusters ever change places.
func (r *roster) order() {
	if len(r.pending) == 0 {
		return
	}
	const few = 16
	if len(r.pending) > few {
		r.sorted = append(r.sorted, r.pending...)
		slices.SortFunc(r.sorted, func(a, b int32) int { return r.byName(a, r.clusters[b].name) })
	} else {
		for _, id := range r.pending {
			at, _ := slices.BinarySearchFunc(r.sorted, r.clusters[id].name, r.byName)
			r.sorted = slices.Insert(r.sorted, at, id)
		}
	}
	r.pending = r.pending[:0]
	r.ranks = slices.Grow(r.ranks[:0], len(r.clusters))[:len(r.clusters)]
	for rank, id := range r.sorted {
		r.ranks[id] = int32(rank)
	}
}
