package controlplane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// holder is who has the lease of the Kubernetes controllers.
func holder(t *testing.T, h *hub) string {
	t.Helper()
	lease, err := h.client.CoordinationV1().Leases("kube-system").Get(context.Background(), kubernetesControllersLease, metav1.GetOptions{})
	must(t, err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// SC-16: a hub whose Kubernetes controllers cannot be prepared says so, and lets another hub have them.
func TestLeaseOfControllersThatFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hub{client: fake.NewClientset()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		broken := errors.New("broken")
		if err := h.runElected(ctx, func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("error %v, want %v", err, broken)
		}
		if got := holder(t, h); got != "" {
			t.Errorf("%s still has the lease", got)
		}
	})
}

// SC-16: a hub that is stopped keeps the lease until its Kubernetes controllers have ended.
func TestLeaseIsReleasedLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hub{client: fake.NewClientset()}
		ctx, cancel := context.WithCancel(t.Context())
		running, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- h.runElected(ctx, func(ctx context.Context) error {
				close(running)
				<-ctx.Done()
				<-end
				return nil
			})
		}()
		<-running
		cancel()
		synctest.Wait()
		if holder(t, h) == "" || len(ended) > 0 {
			t.Error("the lease is free though the controllers run")
		}
		close(end)
		must(t, <-ended)
		if got := holder(t, h); got != "" {
			t.Errorf("%s still has the lease", got)
		}
	})
}

// SC-16: a hub that waits for the lease stops at once.
func TestStopWithoutLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hub{client: fake.NewClientset()}
		ctx, cancel := context.WithCancel(t.Context())
		running := make(chan struct{})
		first := make(chan error, 1)
		go func() {
			first <- h.runElected(ctx, func(ctx context.Context) error {
				close(running)
				<-ctx.Done()
				return nil
			})
		}()
		<-running
		waiting, giveUp := context.WithCancel(t.Context())
		second := make(chan error, 1)
		go func() {
			second <- h.runElected(waiting, func(context.Context) error { return errors.New("two of them run") })
		}()
		synctest.Wait()
		giveUp()
		must(t, <-second)
		cancel()
		must(t, <-first)
	})
}
