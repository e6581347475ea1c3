package replicaset

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
)

// exchanged is a hub whose set has works on two clusters by the placement p, and is to have them by q instead, which selects the same.
func exchanged(t *testing.T) *hub {
	t.Helper()
	h := newHub(t, objects(webSet(ref("p")), decided("p", "c1", "c2"), decided("q", "c1", "c2"))...)
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

// MR-05: the works of a placement that is removed from the set go when those of its successor are there.
func TestDeletionsComeLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := exchanged(t)
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
func TestNoDeletionWithoutSuccessor(t *testing.T) {
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
			if got := h.placements(t, "c1"); !slices.Equal(got, []string{"q"}) {
				t.Errorf("at last, c1 has works of %v", got)
			}
		})
	}
}
