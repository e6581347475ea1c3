package registration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// electionLeases are those by which one of several hubs runs the controllers of hubs, and those of Kubernetes.
var electionLeases = []string{fleet.LeaseHubControllers, "capstan-hub-kubernetes-controllers"}

// term is the time for which a process holds a Lease.
type term struct {
	lease  string
	number int32
}

// writes are what goes to several hubs in turn while they, or what they need, fail, and what is seen of their elections meanwhile.
type writes struct {
	hubs      []client.WithWatch
	namespace string
	end       func()

	mu           sync.Mutex
	acknowledged []string
	byHub        []int           // how many of them each hub has acknowledged
	terms        map[term]string // who led
	twoLead      error
}

// startWriting writes some ConfigMaps a second into a namespace, until the end.
func startWriting(t *testing.T, hubs []client.WithWatch, namespace string) *writes {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writes{hubs: hubs, namespace: namespace, byHub: make([]int, len(hubs)), terms: map[term]string{}}
	var writing sync.WaitGroup
	w.end = func() {
		stop()
		writing.Wait()
	}
	t.Cleanup(w.end)
	writing.Go(func() {
		n := 0
		_ = env.Poll(ctx, func(ctx context.Context) (bool, error) {
			w.write(ctx, n)
			n++
			return false, nil
		})
	})
	return w
}

// write asks one hub. What it does not answer is not counted.
func (w *writes) write(ctx context.Context, n int) {
	const patience = 10 * time.Second // for a hub that does not answer at all: the others wait for their turns
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	hub := n % len(w.hubs)
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("write-%d", n)}}
	if err := w.hubs[hub].Create(ctx, written); err != nil {
		return
	}
	w.mu.Lock()
	w.acknowledged = append(w.acknowledged, written.Name)
	w.byHub[hub]++
	w.mu.Unlock()
	for _, name := range electionLeases {
		lease := &coordinationv1.Lease{}
		if err := w.hubs[hub].Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, lease); err == nil {
			w.observe(lease)
		}
	}
}

// observe notes who leads. Whoever takes a Lease from another begins a term.
func (w *writes) observe(lease *coordinationv1.Lease) {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" {
		return
	}
	now := term{lease.Name, ptr.Deref(lease.Spec.LeaseTransitions, 0)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, seen := w.terms[now]; seen && other != holder {
		w.twoLead = fmt.Errorf("term %d of the Lease %s is of both %s and %s", now.number, now.lease, other, holder)
	}
	w.terms[now] = holder
}

func (w *writes) counts() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.byHub)
}

// check ends the writes, and looks whether all that was acknowledged is there, and whether one hub led at a time.
func (w *writes) check(t *testing.T) {
	t.Helper()
	w.end()
	if w.twoLead != nil {
		t.Error(w.twoLead)
	}
	held := map[string]bool{}
	for of := range w.terms {
		held[of.lease] = true
	}
	if len(held) != len(electionLeases) {
		t.Errorf("the Leases that somebody was seen to hold are %v, want %v", held, electionLeases)
	}
	there := &corev1.ConfigMapList{}
	env.Eventually(t, func(ctx context.Context) error { return w.hubs[0].List(ctx, there, client.InNamespace(w.namespace)) })
	names := map[string]bool{}
	for _, one := range there.Items {
		names[one.Name] = true
	}
	for _, name := range w.acknowledged {
		if !names[name] {
			t.Errorf("ConfigMap %s was acknowledged, and is lost", name)
		}
	}
}
