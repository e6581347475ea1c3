package workload

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AF-13: as many works as it takes, and an object that is too large has one of its own.
func TestSplit(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 30_000), configMap("b", 60_000), configMap("c", 5_000), configMap("d", 20_000))
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-0", "create cluster1/addon-hello-deploy-1", "create cluster1/addon-hello-deploy-2")
	h.expectObjects("cluster1", "addon-hello-deploy-0", "ConfigMap a", "ConfigMap c")
	h.expectObjects("cluster1", "addon-hello-deploy-1", "ConfigMap b")
	h.expectObjects("cluster1", "addon-hello-deploy-2", "ConfigMap d")
}

// AF-13 SD-09: what is added goes where there is room, and moves nothing.
func TestSplitIsStable(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("b", 30_000), configMap("d", 30_000))
	h.reconcile()
	h.agents(nil)
	h.Workload.Objects = append(h.Workload.Objects, configMap("a", 30_000), configMap("c", 1_000))
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-2", "update cluster1/addon-hello-deploy-0")
	h.expectObjects("cluster1", "addon-hello-deploy-0", "ConfigMap b", "ConfigMap c")
	h.agents(nil)
	// A work that is not needed any more goes, and its number is free again.
	h.Workload.Objects = slices.Delete(h.Workload.Objects, 1, 2)
	h.reconcile()
	h.expectWrites("delete cluster1/addon-hello-deploy-1")
	h.agents(nil)
	h.Workload.Objects = append(h.Workload.Objects, configMap("e", 30_000))
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-1")
}

// An object that has to move is in the work it leaves until the other one has applied it.
func TestMove(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 20_000), configMap("b", 15_000))
	h.reconcile()
	h.agents(nil)
	h.Workload.Objects = []client.Object{configMap("a", 30_000), configMap("b", 15_000)}
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-1", "update cluster1/addon-hello-deploy-0")
	h.expectObjects("cluster1", "addon-hello-deploy-0", "ConfigMap a", "ConfigMap b")
	h.expectObjects("cluster1", "addon-hello-deploy-1", "ConfigMap b")
	h.reconcile()
	h.expectWrites()
	h.agents(nil)
	h.reconcile()
	h.expectWrites("update cluster1/addon-hello-deploy-0")
	h.expectObjects("cluster1", "addon-hello-deploy-0", "ConfigMap a")
	h.agents(nil)
	h.reconcile()
	h.expectWrites()
}

// A work that a user deletes is created again when it is gone, and its objects do not go elsewhere in between.
func TestDeletedWork(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 30_000), configMap("b", 30_000))
	h.reconcile()
	h.agents(nil)
	h.work("cluster1", "addon-hello-deploy-0").DeletionTimestamp = new(metav1.NewTime(noon))
	h.Workload.Objects = append(h.Workload.Objects, configMap("c", 1_000))
	h.reconcile()
	h.expectWrites("update cluster1/addon-hello-deploy-1")
	h.agents(nil)
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-0")
}

// AF-13 whatever happens: every object is in one work, none is too large, what fits stays where it is, and nothing is written
// that has not changed.
func TestSplitProperties(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		checkSplit(t, seed)
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkSplit(t, seed) })
}

func checkSplit(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	h := newHub(t)
	h.MaxBytes = 1_000
	sizes := map[string]int{}
	for round := range 12 {
		before, was := h.homes(), maps.Clone(sizes)
		vary(r, sizes)
		h.Workload.Objects = nil
		for name, size := range sizes { // in any order
			h.Workload.Objects = append(h.Workload.Objects, configMap(name, size))
		}
		h.reconcile()
		changed := changedWorks(before, was, sizes)
		now := h.homes()
		for _, w := range h.plan.Update {
			if !changed[w.Name] && !gains(w.Name, before, now) {
				t.Fatalf("seed %d, round %d: %s is written, though nothing changes there", seed, round, w.Name)
			}
		}
		if slices.Equal(sorted(was), sorted(sizes)) && len(h.writes) > 0 {
			t.Fatalf("seed %d, round %d: writes %v though nothing has changed", seed, round, h.writes)
		}
		for range 10 {
			homes := h.homes()
			for name := range sizes {
				if len(homes[name]) == 0 {
					t.Fatalf("seed %d, round %d: %s is in no work, while others move", seed, round, name)
				}
			}
			h.agents(nil)
			if h.reconcile(); len(h.writes) == 0 {
				break
			}
		}
		if len(h.writes) > 0 {
			t.Fatalf("seed %d, round %d: it never comes to an end: %v", seed, round, h.writes)
		}
		now = h.homes()
		h.checkLimits(seed, round, sizes, now)
		for name, homes := range before {
			size, still := sizes[name]
			if grown := grewBeyond(before, sizes, homes, h.MaxBytes); still && size == was[name] && !grown && !slices.Equal(now[name], homes) {
				t.Fatalf("seed %d, round %d: %s has moved from %v to %v", seed, round, name, homes, now[name])
			}
		}
	}
}

// vary adds, removes and changes some.
func vary(r *rand.Rand, sizes map[string]int) {
	for range r.IntN(6) {
		name := fmt.Sprintf("o%d", r.IntN(25))
		if r.IntN(3) == 0 {
			delete(sizes, name)
		} else {
			sizes[name] = []int{10, 100, 300, 600, 1_500}[r.IntN(5)]
		}
	}
}

func sorted(sizes map[string]int) (all []string) {
	for name, size := range sizes {
		all = append(all, fmt.Sprint(name, size))
	}
	slices.Sort(all)
	return all
}

// gains reports whether a work has objects that it did not have before.
func gains(work string, before, now map[string][]string) bool {
	for name, homes := range now {
		if slices.Contains(homes, work) && !slices.Contains(before[name], work) {
			return true
		}
	}
	return false
}

// homes are the works in which objects are.
func (h *hub) homes() map[string][]string {
	homes := map[string][]string{}
	for i := range h.Existing {
		if w := &h.Existing[i]; w.DeletionTimestamp == nil {
			for _, o := range h.objects(w.Namespace, w.Name) {
				name := strings.TrimPrefix(o, "ConfigMap ")
				homes[name] = append(homes[name], w.Name)
			}
		}
	}
	return homes
}

func changedWorks(before map[string][]string, was, sizes map[string]int) map[string]bool {
	changed := map[string]bool{}
	for name, homes := range before {
		if now, still := sizes[name]; !still || now != was[name] {
			for _, home := range homes {
				changed[home] = true
			}
		}
	}
	return changed
}

// grewBeyond reports whether what was in works does not fit there any more.
func grewBeyond(before map[string][]string, sizes map[string]int, works []string, limit int) bool {
	total := map[string]int{}
	for name, homes := range before {
		if size, still := sizes[name]; still {
			total[homes[0]] += len(fmt.Sprintf(`{"apiVersion":"v1","data":{"k":""},"kind":"ConfigMap","metadata":{"name":"%s","namespace":"ns"}}`,
				name)) + size
		}
	}
	return total[works[0]] > limit
}

func (h *hub) checkLimits(seed uint64, round int, sizes map[string]int, now map[string][]string) {
	h.Helper()
	for name := range sizes {
		if homes := now[name]; len(homes) != 1 {
			h.Fatalf("seed %d, round %d: %s is in %v", seed, round, name, homes)
		}
	}
	if len(now) != len(sizes) {
		h.Fatalf("seed %d, round %d: %d objects in works, want %d", seed, round, len(now), len(sizes))
	}
	for i := range h.Existing {
		bytes, manifests := 0, h.Existing[i].Spec.Workload.Manifests
		for _, m := range manifests {
			bytes += len(m.Raw)
		}
		if len(manifests) == 0 || len(manifests) > 1 && bytes > h.MaxBytes {
			h.Fatalf("seed %d, round %d: %s has %d objects of %d bytes", seed, round, h.Existing[i].Name, len(manifests), bytes)
		}
	}
}
