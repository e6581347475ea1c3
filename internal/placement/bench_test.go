package placement

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var benchmarkSizes = []int{1_000, 5_000, 10_000}

// benchmarkCluster has different CPU and score than its neighbours.
func benchmarkCluster(i int) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{}
	c.Name = fmt.Sprintf("cluster-%05d", i)
	c.Labels = map[string]string{fleet.LabelClusterSet: "default", "region": fmt.Sprintf("r%d", i%20), "id": c.Name}
	cpu := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(4+(i*7919)%997), resource.DecimalSI)}
	c.Status.Allocatable, c.Status.Capacity = cpu, cpu
	c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "id.k8s.io", Value: c.Name}, {Name: "platform", Value: "aws"}}
	return c
}

func benchmarkScore(i, value int) *clusterv1alpha1.AddOnPlacementScore {
	score := &clusterv1alpha1.AddOnPlacementScore{}
	score.Namespace, score.Name = fmt.Sprintf("cluster-%05d", i), "usage"
	score.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "cpu", Value: int32(value)}}
	return score
}

// benchmarkPlacement selects 10 clusters by AddOn, ResourceAllocatableCPU, Balance and Steady.
func benchmarkPlacement(i int) *clusterv1beta1.Placement {
	p := &clusterv1beta1.Placement{}
	p.Namespace, p.Name, p.UID = "default", fmt.Sprintf("placement-%05d", i), "1"
	ten := int32(10)
	p.Spec.NumberOfClusters = &ten
	p.Spec.PrioritizerPolicy.Configurations = []clusterv1beta1.PrioritizerConfig{
		{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeAddOn,
			AddOn: &clusterv1beta1.AddOnScore{ResourceName: "usage", ScoreName: "cpu"}}},
		{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{BuiltIn: clusterv1beta1.PrioritizerResourceAllocatableCPU}},
		{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{BuiltIn: clusterv1beta1.PrioritizerBalance}},
	}
	return p
}

func benchmarkFleet(clusters, placements int) *Scheduler {
	s := New(Options{})
	s.Advance(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	set := &clusterv1beta2.ManagedClusterSet{}
	set.Name = "default"
	s.SetClusterSet(set)
	binding := &clusterv1beta2.ManagedClusterSetBinding{}
	binding.Namespace, binding.Name = "default", "default"
	s.SetBinding(binding)
	for i := range clusters {
		s.SetCluster(benchmarkCluster(i))
		s.SetScore(benchmarkScore(i, (i*6151)%201-100))
	}
	for i := range placements {
		s.SetPlacement(benchmarkPlacement(i))
	}
	return s
}

// BenchmarkStart passes 10,000 placements, each in a namespace of its own with two bindings, 100 cluster sets, 10,000 clusters, and the
// decisions of all placements to a new scheduler, in the order that takes longest.
func BenchmarkStart(b *testing.B) {
	const clusters, placements, sets = 10_000, 10_000, 100
	for b.Loop() {
		s := New(Options{})
		s.Advance(start)
		for i := range placements {
			s.SetPlacement(benchmarkTenant(i))
		}
		for i := range placements {
			s.SetBinding(binding(benchmarkTenant(i).Namespace, "default"))
			s.SetBinding(binding(benchmarkTenant(i).Namespace, fmt.Sprintf("set-%03d", i%sets)))
		}
		s.SetClusterSet(set("default"))
		for i := range sets {
			s.SetClusterSet(set(fmt.Sprintf("set-%03d", i)))
		}
		for i := range clusters {
			s.SetCluster(benchmarkCluster(i))
		}
		for i := range placements {
			var selected []string
			for j := range 10 {
				selected = append(selected, benchmarkCluster((i*10+j)%clusters).Name)
			}
			s.Restore(keyOf(benchmarkTenant(i)), listed(selected...))
		}
	}
}

// benchmarkTenant is a placement in a namespace of its own.
func benchmarkTenant(i int) *clusterv1beta1.Placement {
	p := benchmarkPlacement(i)
	p.Namespace = fmt.Sprintf("tenant-%05d", i)
	return p
}

// BenchmarkScheduleFirst is the first schedule of a placement of a class of its own: its candidates and their scores have to be
// computed.
func BenchmarkScheduleFirst(b *testing.B) {
	for name, option := range map[string]option{
		"plain":  func(*clusterv1beta1.Placement) {},
		"label":  withPredicates(byLabels(map[string]string{"region": "r7"})),
		"spread": withSpread(spreadOver(clusterv1beta1.TopologyKeyTypeLabel, "region", 1, clusterv1beta1.DoNotSchedule)),
		"unique": withSpread(spreadOver(clusterv1beta1.TopologyKeyTypeClaim, "id.k8s.io", 1, clusterv1beta1.ScheduleAnyway)),
		"cel":    withPredicates(byCEL(`managedCluster.metadata.labels["region"] == "r7"`)),
	} {
		for _, clusters := range benchmarkSizes {
			b.Run(fmt.Sprintf("%s/clusters=%d", name, clusters), func(b *testing.B) {
				s := benchmarkFleet(clusters, 0)
				p := benchmarkPlacement(0)
				option(p)
				s.SetPlacement(p)
				for b.Loop() {
					class := s.snapshot.placements[keyOf(p)].class
					s.classes.dropCandidates(class)
					class.evaluation = nil
					s.snapshot.setDecision(s.snapshot.placements[keyOf(p)], nil)
					if result, _ := s.Schedule(keyOf(p)); result.Pending {
						evaluateAll(s)
						clear(s.evaluations.queues)
						s.Schedule(keyOf(p))
					}
				}
			})
		}
	}
}

// BenchmarkSpread schedules with constraints over topologies of many clusters, over as many as there are clusters, and over
// both; and over zones and their providers, where most clusters spread well over the one or over the other only. That takes longest if each
// cluster has a combination of topologies of its own, as with pairs. The class of the placement is known.
func BenchmarkSpread(b *testing.B) {
	const clusters = 10_000
	const label, claim = clusterv1beta1.TopologyKeyTypeLabel, clusterv1beta1.TopologyKeyTypeClaim
	const strict, anyway = clusterv1beta1.DoNotSchedule, clusterv1beta1.ScheduleAnyway
	for name, constraints := range map[string][]clusterv1beta1.SpreadConstraintsTerm{
		"region":        {spreadOver(label, "region", 1, strict)},
		"unique":        {spreadOver(claim, "id.k8s.io", 1, strict)},
		"unique-anyway": {spreadOver(claim, "id.k8s.io", 1, anyway)},
		"half-unique":   {spreadOver(label, "half", 1, anyway), spreadOver(claim, "id.k8s.io", 1, anyway)},
		"one-unique":    {spreadOver(label, "one", 1, anyway), spreadOver(claim, "id.k8s.io", 1, strict)},
		"eight-unique": slices.Repeat([]clusterv1beta1.SpreadConstraintsTerm{
			spreadOver(claim, "id.k8s.io", 1, anyway), spreadOver(label, "id", 1, strict), spreadOver(label, "half", 2, anyway),
			spreadOver(label, "one", 1, anyway)}, 2),
		"correlated": {spreadOver(label, "zone", 1, anyway), spreadOver(label, "provider", 1, anyway)},
		"correlated-unique": {spreadOver(claim, "id.k8s.io", 1, anyway), spreadOver(label, "zone", 1, anyway),
			spreadOver(label, "provider", 1, anyway)},
		"correlated-pairs": {spreadOver(label, "pair", 1, anyway), spreadOver(label, "zone", 1, anyway),
			spreadOver(label, "provider", 1, anyway)},
	} {
		for _, n := range []int32{10, clusters - 1, clusters} {
			b.Run(fmt.Sprintf("%s/select=%d", name, n), func(b *testing.B) {
				s := benchmarkFleet(clusters, 0)
				for i := range clusters {
					c := benchmarkCluster(i)
					c.Labels["half"], c.Labels["one"], c.Labels["pair"] = fmt.Sprint(i%2), fmt.Sprint(i/(clusters-1)), fmt.Sprint(i/2)
					c.Labels["zone"], c.Labels["provider"] = fmt.Sprint(i%3), fmt.Sprint(i%3/2) // 0 and 1 are of one provider
					s.SetCluster(c)
				}
				p := benchmarkPlacement(0)
				withLimit(n)(p)
				withSpread(constraints...)(p)
				s.SetPlacement(p)
				s.Schedule(keyOf(p))
				for b.Loop() {
					s.snapshot.setDecision(s.snapshot.placements[keyOf(p)], nil)
					s.Schedule(keyOf(p))
				}
			})
		}
	}
}

// BenchmarkGroups schedules a placement of a known class that selects all clusters, with a decision group for those without any of the most
// values that there may be.
func BenchmarkGroups(b *testing.B) {
	s := benchmarkFleet(10_000, 0)
	p := benchmarkPlacement(0)
	p.Spec.NumberOfClusters = nil
	p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups = []clusterv1beta1.DecisionGroup{{GroupName: "others",
		ClusterSelector: clusterv1beta1.GroupClusterSelector{LabelSelector: metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "region", Operator: metav1.LabelSelectorOpNotIn, Values: manyValues(budget.Values)}}}}}}
	s.SetPlacement(p)
	for b.Loop() {
		s.Schedule(keyOf(p))
	}
}

// BenchmarkDifferentPlacements schedules 10,000 placements of which each selects by a label of its own, and then lets one
// cluster get another taint.
func BenchmarkDifferentPlacements(b *testing.B) {
	const clusters, placements = 10_000, 10_000
	s := benchmarkFleet(clusters, 0)
	for i := range placements {
		p := benchmarkPlacement(i)
		withPredicates(byLabels(map[string]string{"id": benchmarkCluster(i).Name}))(p)
		s.SetPlacement(p)
	}
	keys := sortedKeys(everyKey(s))
	b.Run("schedule", func(b *testing.B) {
		for b.Loop() {
			for _, class := range s.classes.byKey {
				s.classes.dropCandidates(class)
			}
			for _, key := range keys {
				s.Schedule(key)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/placements, "ns/placement")
	})
	b.Run("event", func(b *testing.B) {
		for toggle := 0; b.Loop(); toggle++ {
			for _, key := range s.SetCluster(taintedBenchmarkCluster(77, toggle%2 == 0)) {
				s.Schedule(key)
			}
		}
	})
}

func taintedBenchmarkCluster(i int, tainted bool) *clusterv1.ManagedCluster {
	c := benchmarkCluster(i)
	if tainted {
		c.Spec.Taints = []clusterv1.Taint{taint("down:NoSelect")}
	}
	return c
}

// BenchmarkSchedulePlacements schedules 10,000 placements that were created at once.
func BenchmarkSchedulePlacements(b *testing.B) {
	for _, clusters := range benchmarkSizes {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			s := benchmarkFleet(clusters, 10_000)
			keys := sortedKeys(everyKey(s))
			for b.Loop() {
				b.StopTimer()
				for _, p := range s.snapshot.placements {
					s.snapshot.setDecision(p, nil)
				}
				b.StartTimer()
				for _, key := range keys {
					s.Schedule(key)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/placement")
		})
	}
}

// BenchmarkEvent is one change of a cluster, and the schedules of all placements that it may affect, of 10,000.
func BenchmarkEvent(b *testing.B) {
	for _, clusters := range benchmarkSizes {
		s := benchmarkFleet(clusters, 10_000)
		for _, key := range sortedKeys(everyKey(s)) {
			s.Schedule(key)
		}
		toggle := 0
		for _, event := range []struct {
			name   string
			happen func() []Key
		}{
			{"heartbeat", func() []Key { return s.SetCluster(benchmarkCluster(clusters / 2)) }},
			{"score", func() []Key { return s.SetScore(benchmarkScore(clusters/3, toggle%201-100)) }},
			{"taint", func() []Key {
				return s.SetCluster(taintedBenchmarkCluster(clusters/4, toggle%2 == 0))
			}},
			// The most CPU of all changes, and with it the score of every cluster.
			{"most-cpu", func() []Key {
				c := benchmarkCluster(clusters / 5)
				cpu := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(1100+toggle%2*400), resource.DecimalSI)}
				c.Status.Allocatable, c.Status.Capacity = cpu, cpu
				return s.SetCluster(c)
			}},
			{"goes", func() []Key {
				if toggle%2 == 0 {
					return s.DeleteCluster(benchmarkCluster(clusters / 6).Name)
				}
				return s.SetCluster(benchmarkCluster(clusters / 6))
			}},
		} {
			b.Run(fmt.Sprintf("clusters=%d/%s", clusters, event.name), func(b *testing.B) {
				scheduled := 0
				for b.Loop() {
					toggle++
					for _, key := range event.happen() {
						s.Schedule(key)
						scheduled++
					}
				}
				b.ReportMetric(float64(scheduled)/float64(b.N), "placements/op")
			})
		}
	}
}

// BenchmarkMemory is the heap of a scheduler of 10,000 clusters, without the objects themselves.
func BenchmarkMemory(b *testing.B) {
	for _, placements := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("clusters=10000/placements=%d", placements), func(b *testing.B) {
			for b.Loop() {
				s := benchmarkFleet(10_000, placements)
				for _, key := range everyKey(s) {
					s.Schedule(key)
				}
				with := heapBytes()
				for _, c := range s.snapshot.clusters.sorted {
					c.object, c.scores = nil, nil
				}
				for _, p := range s.snapshot.placements {
					p.object = nil
				}
				b.ReportMetric(float64(heapBytes())/(1<<20), "MB")
				b.ReportMetric(float64(with)/(1<<20), "MB-with-objects")
				runtime.KeepAlive(s)
			}
		})
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func everyKey(s *Scheduler) []Key {
	var keys []Key
	for key := range s.snapshot.placements {
		keys = append(keys, key)
	}
	return keys
}
