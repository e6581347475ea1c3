package replicaset

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// exchanged is a hub whose set has works on two clusters by the placement p, and is to have them by q instead, which selects the same.
func exchanged(t *testing.T) *hub {
	t.Helper()
	h := newHub(t, objects(webSet(ref("p")), decidedPlacement("p", "c1", "c2"), decidedPlacement("q", "c1", "c2"))...)
	h.reconcile(t)
	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{ref("q")}
	})
	return h
}

// placements are those of the works on a cluster.
func (h *hub) placements(t *testing.T, cluster string) (names []string) {
	t.Helper()
	for _, w := range h.works(t)[cluster] {
		names = append(names, w.Labels["work.open-cluster-management.io/placementname"])
	}
	slices.Sort(names)
	return names
}

// MR-05: the works of a placement that is removed from the set go when all others are written.
func TestDeletionsComeLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := exchanged(t)
		h.decide(t, decision("q", 1, 0, "c3", "c4"))
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		answer := make(chan struct{})
		h.client = interceptor.NewClient(h.WithWatch, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				<-answer
				note("create")
				return c.Create(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				note("delete")
				return c.Delete(ctx, o, opts...)
			},
		})
		ended := make(chan error, 1)
		go func() {
			_, err := h.Reconcile(t.Context(), request)
			ended <- err
		}()
		synctest.Wait() // until the API server is to answer
		close(answer)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if want := []string{"create", "create", "delete", "delete"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
	})
}

// MR-05: a cluster keeps its work while that of the other placement cannot be written, and still counts it.
func TestNoDeletionAfterFailedWrite(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refs []workv1alpha1.LocalPlacementReference
		want []string // Of the cluster c1, after the failure.
	}{
		"removed from the set": {[]workv1alpha1.LocalPlacementReference{ref("q")}, []string{"p"}},
		"selects it no more":   {[]workv1alpha1.LocalPlacementReference{ref("p"), ref("q")}, []string{"p"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := exchanged(t)
			h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.PlacementRefs = test.refs })
			h.decide(t, decision("p", 1, 0))
			unwilling := atomic.Bool{}
			unwilling.Store(true)
			h.client = interceptor.NewClient(h.WithWatch, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if _, work := o.(*workv1.ManifestWork); work && o.GetNamespace() == "c1" && unwilling.Load() {
						return errors.New("not now")
					}
					return c.Create(ctx, o, opts...)
				},
			})
			for range 2 { // the second time, clusters have been deselected for long enough
				if _, err := h.Reconcile(t.Context(), request); err == nil {
					t.Error("there is no error to try again for")
				}
				h.clock.Step(debounce.Delay)
				h.report(t, []string{"c2"}, "Applied", "True")
			}
			if got := h.placements(t, "c1"); !slices.Equal(got, test.want) {
				t.Errorf("c1 has works of %v, want %v", got, test.want)
			}
			if got := h.placements(t, "c2"); !slices.Equal(got, []string{"q"}) {
				t.Errorf("c2 has works of %v", got)
			}
			if len(test.refs) > 1 && h.set(t).Status.Summary.Total != 2 {
				t.Errorf("summary %+v", h.set(t).Status.Summary)
			}
			unwilling.Store(false)
			h.reconcile(t)
			h.report(t, []string{"c1"}, "Applied", "True")
			h.reconcile(t)
			if got := h.placements(t, "c1"); !slices.Equal(got, []string{"q"}) {
				t.Errorf("at last, c1 has works of %v", got)
			}
		})
	}
}

// MR-05: a work that cannot be deleted does not keep another one on its cluster from changing.
func TestChangesBesideRefusedDeletion(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *hub){
		"removed from the set": func(t *testing.T, h *hub) {
			h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
				set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{ref("q")}
			})
		},
		"selects it no more": func(t *testing.T, h *hub) { h.decide(t, decision("p", 1, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, objects(webSet(ref("p"), ref("q")), decidedPlacement("p", "c1"), decidedPlacement("q", "c1"))...)
			h.reconcile(t)
			h.report(t, []string{"c1"}, "Applied", "True", "Progressing", "False")
			h.client = interceptor.NewClient(h.WithWatch, interceptor.Funcs{
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					return errors.New("not now")
				},
			})
			leave(t, h)
			_, _ = h.Reconcile(t.Context(), request) // clusters may not have been deselected for long enough
			for range 2 {
				h.clock.Step(patience)
				if _, err := h.Reconcile(t.Context(), request); err == nil {
					t.Error("there is no error to try again for")
				}
			}
			h.setTemplate(t, "2")
			_, _ = h.Reconcile(t.Context(), request)
			if raw := string(h.workOf(t, "c1", "q").Spec.Workload.Manifests[0].Raw); !strings.Contains(raw, `"version":"2"`) {
				t.Errorf("the work of q has %s", raw)
			}
		})
	}
}

// MR-05: a cluster that gets its objects from another placement keeps its work until the one of the other placement is applied.
func TestNoDeletionWithoutSuccessor(t *testing.T) {
	t.Parallel()
	oneByOne := progressive(1, clusterv1alpha1.RolloutConfig{})
	oneByOne.Name = "q"
	for name, test := range map[string]struct {
		successor workv1alpha1.LocalPlacementReference
		// hinder has the cluster c2 be without an applied work of the successor, and further ends that.
		hinder, further func(*testing.T, *hub)
		want            []string // Of the cluster c2, in between.
	}{
		"unknown": {
			successor: ref("r"),
			further: func(t *testing.T, h *hub) {
				for _, o := range decidedPlacement("r", "c1", "c2") {
					h.create(t, o)
				}
			},
			want: []string{"p"},
		},
		"not decided": {
			successor: ref("r"),
			hinder:    func(t *testing.T, h *hub) { h.create(t, decidedPlacement("r")[0]) },
			further:   func(t *testing.T, h *hub) { h.create(t, decision("r", 1, 0, "c1", "c2")) },
			want:      []string{"p"},
		},
		"waiting": {
			successor: oneByOne,
			hinder: func(t *testing.T, h *hub) {
				h.reconcile(t)
				h.report(t, []string{"c1"}, "Applied", "True")
			},
			want: []string{"p"},
		},
		"not applied": {
			successor: ref("q"),
			hinder: func(t *testing.T, h *hub) {
				h.reconcile(t)
				h.report(t, []string{"c1"}, "Applied", "True")
			},
			want: []string{"p", "q"},
		},
		"being deleted": {
			successor: ref("q"),
			hinder: func(t *testing.T, h *hub) {
				h.reconcile(t)
				h.report(t, []string{"c2"}, "Applied", "True")
				w := h.workOf(t, "c2", "q")
				w.Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
				if err := h.Update(t.Context(), w); err != nil {
					t.Fatal(err)
				}
				if err := h.Delete(t.Context(), w); err != nil {
					t.Fatal(err)
				}
			},
			further: func(t *testing.T, h *hub) {
				w := h.workOf(t, "c2", "q")
				w.Finalizers = nil
				if err := h.Update(t.Context(), w); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"p", "q"},
		},
	} {
		for how, former := range map[string][]workv1alpha1.LocalPlacementReference{
			"removed from the set": nil, "selects it no more": {ref("p")},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				h := exchanged(t)
				h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
					set.Spec.PlacementRefs = append(slices.Clone(former), test.successor)
				})
				h.decide(t, decision("p", 1, 0))
				if test.hinder != nil {
					test.hinder(t, h)
				}
				h.reconciled(t)
				if got := h.placements(t, "c2"); !slices.Equal(got, test.want) {
					t.Errorf("c2 has works of %v, want %v", got, test.want)
				}
				if test.further != nil {
					test.further(t, h)
				}
				h.succeed(t, "c1", "c2")
				h.reconcile(t)
				for _, cluster := range []string{"c1", "c2"} {
					if got := h.placements(t, cluster); !slices.Equal(got, []string{test.successor.Name}) {
						t.Errorf("at last, %s has works of %v", cluster, got)
					}
				}
			})
		}
	}
}

// MR-05: a cluster keeps its work while the one of the other placement has an earlier template, unless it has the same.
func TestNoDeletionWithEarlierTemplate(t *testing.T) {
	t.Parallel()
	oneByOne := progressive(1, clusterv1alpha1.RolloutConfig{})
	successor := oneByOne
	successor.Name = "q"
	goOn := func(t *testing.T, h *hub) { h.report(t, []string{"c1"}, "Progressing", "False") }
	for name, test := range map[string]struct {
		predecessor workv1alpha1.LocalPlacementReference
		// further ends the wait.
		further    func(*testing.T, *hub)
		want, last []string // Of the cluster c2, while the rollout of the successor waits, and after.
	}{
		"the rollout goes on": {ref("p"), goOn, []string{"p", "q"}, []string{"q"}},
		"nobody selects the cluster": {ref("p"), func(t *testing.T, h *hub) { h.decide(t, decision("q", 1, 0, "c1")) },
			[]string{"p", "q"}, nil},
		"the rollout stops": {ref("p"), func(t *testing.T, h *hub) { h.report(t, []string{"c1"}, "Degraded", "True") },
			[]string{"p", "q"}, []string{"q"}},
		"the same template": {oneByOne, goOn, []string{"q"}, []string{"q"}},
	} {
		for how, remaining := range map[string][]workv1alpha1.LocalPlacementReference{
			"removed from the set": {successor}, "selects it no more": {test.predecessor, successor},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				both := []string{"c1", "c2"}
				h := newHub(t, objects(webSet(test.predecessor, successor), decidedPlacement("p", both...), decidedPlacement("q", both...))...)
				h.reconcile(t)
				for range 2 {
					h.report(t, both, "Applied", "True", "Progressing", "False")
					h.reconcile(t)
				}
				h.setTemplate(t, "2")
				h.reconcile(t)
				h.report(t, both, "Applied", "True", "Progressing", "True")
				h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.PlacementRefs = remaining })
				h.decide(t, decision("p", 1, 0, "c1"))
				h.reconciled(t)
				if got := h.placements(t, "c2"); !slices.Equal(got, test.want) {
					t.Errorf("c2 has works of %v, want %v", got, test.want)
				}
				test.further(t, h)
				h.reconciled(t)
				h.report(t, both, "Applied", "True")
				h.reconcile(t)
				if got := h.placements(t, "c2"); !slices.Equal(got, test.last) {
					t.Errorf("at last, c2 has works of %v, want %v", got, test.last)
				}
			})
		}
	}
}

func (h *hub) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := h.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// workOf returns the work of a placement on a cluster.
func (h *hub) workOf(t *testing.T, cluster, placement string) *workv1.ManifestWork {
	t.Helper()
	for _, w := range h.works(t)[cluster] {
		if w.Labels[fleet.LabelPlacementName] == placement {
			return &w
		}
	}
	t.Fatalf("there is no work of placement %s on %s", placement, cluster)
	return nil
}

// MR-04: nulls in manifests, as tools write them, get to works, also where they are all that is new, and do not keep a rollout from its
// end.
func TestNullsInManifests(t *testing.T) {
	t.Parallel()
	set := webSet(progressive(1, clusterv1alpha1.RolloutConfig{}))
	h := newHub(t, objects(set, decidedPlacement("p", "c1", "c2"))...)
	succeed := func() {
		t.Helper()
		for range 2 {
			h.reconcile(t)
			h.report(t, []string{"c1", "c2"}, "Applied", "True", "Progressing", "False")
		}
		h.reconcile(t)
		h.expectCondition(t, "PlacementRolledOut", metav1.ConditionTrue, "Complete")
	}
	succeed()
	for _, raw := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","list":[{}],"metadata":{"name":"web"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","list":[{"field":null}],"metadata":{"creationTimestamp":null,"name":"web"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","list":[{}],"metadata":{"name":"web"},"other":null}`,
	} {
		h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
			set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw = []byte(raw)
		})
		succeed()
		for cluster, list := range h.works(t) {
			if got := string(list[0].Spec.Workload.Manifests[0].Raw); got != raw {
				t.Errorf("%s has %s, want %s", cluster, got, raw)
			}
		}
		h.writes.Store(0)
		h.reconcile(t)
		if n := h.writes.Load(); n != 0 {
			t.Errorf("%d writes when nothing is due", n)
		}
	}
}
