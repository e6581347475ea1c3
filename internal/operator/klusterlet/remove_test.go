package klusterlet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/remote"
)

// KL-32: which errors mean that a cluster cannot be reached; one that answers, and refuses, can.
func TestIsUnreachable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, true},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true},
		{context.DeadlineExceeded, true},
		{fmt.Errorf("there is no Secret: %w", errNoKubeconfig), true},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "a", errors.New("no")), false},
		{apierrors.NewUnauthorized("expired"), false},
		{errors.New("another"), false},
	} {
		if got := isUnreachable(fmt.Errorf("wrapped: %w", test.err)); got != test.want {
			t.Errorf("%v: %t", test.err, got)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, left := range map[string][]string{"": nil, "a, b": {"a", "b"}, "a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"}} {
		if got := summary(left); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// KL-32: a managed cluster is given up when it was unreachable for five minutes without a break.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeHosted)
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := &Controller{client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(k).Build(), Options: Options{Clock: clock}}
	if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(k), k); err != nil {
		t.Fatal(err)
	}
	after := func(wait time.Duration, want bool) {
		t.Helper()
		clock.Step(wait)
		if got, err := c.giveUp(t.Context(), k, errNoKubeconfig); err != nil || got != want {
			t.Errorf("%t, %v", got, err)
		}
	}
	after(0, false)
	after(4*time.Minute, false)
	if err := c.forgetUnreachable(t.Context(), k); err != nil || len(k.Annotations) > 0 {
		t.Fatalf("%v, %v", k.Annotations, err)
	}
	after(2*time.Minute, false)
	after(4*time.Minute, false)
	after(2*time.Minute, true)
}

// listed is a watch that has listed what is in the store.
type listed struct {
	toolscache.SharedIndexInformer
	store toolscache.Store
}

func (l listed) HasSynced() bool            { return true }
func (l listed) GetStore() toolscache.Store { return l.store }

// KL-32: a managed cluster that answers with an error does not hold the removal without the way out being named.
func TestRemovalNamesTheWayOut(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeHosted)
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: fleet.SecretExternalManagedKubeconfig}}
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	if err := store.Add(stored); err != nil {
		t.Fatal(err)
	}
	c := &Controller{
		client:  fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(k.DeepCopy()).Build(),
		managed: remote.New(t.Context(), apply.Options{}),
		secrets: &secretsByName{watches: map[string]toolscache.SharedIndexInformer{stored.Name: listed{store: store}}},
	}
	waitsFor, err := c.removeFromHosted(t.Context(), k)
	const want = "correct Secret klusterlet/external-managed-kubeconfig, or delete it: 5m0s later, what is on the managed cluster is given up"
	if err == nil || !strings.Contains(err.Error(), "has no key kubeconfig") || !strings.Contains(err.Error(), want) || waitsFor != "" {
		t.Errorf("waits for %q, error %v", waitsFor, err)
	}
}

// KL-32: what this agent has applied stays, and nothing holds its records any more; those of other agents on the cluster are left alone.
func TestAppliedWorksAreLetGo(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeDefault)
	k.UID = "mine"
	applied := func(name, agent string, finalizers ...string) *workv1.AppliedManifestWork {
		return &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
			Spec: workv1.AppliedManifestWorkSpec{AgentID: agent}}
	}
	const ofAgent, ofOthers = fleet.FinalizerAppliedManifestWorkCleanup, "example.com/stay"
	deleted := applied("deleted", "mine", ofAgent)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(applied("kept", "mine", ofAgent, ofOthers), deleted,
		applied("other", "another", ofAgent)).Build()
	if err := (&Controller{}).removeAppliedWorks(t.Context(), k, &apply.Cluster{Client: api}); err != nil {
		t.Fatal(err)
	}
	left := &workv1.AppliedManifestWorkList{}
	if err := api.List(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, w := range left.Items {
		got[w.Name] = strings.Join(w.Finalizers, " ")
	}
	if want := map[string]string{"kept": ofOthers, "other": ofAgent}; !maps.Equal(got, want) {
		t.Errorf("left with their finalizers: %v, want %v", got, want)
	}
}
