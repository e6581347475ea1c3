package gateway

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
)

// CG-01: a watch that its client leaves in the middle of events ends, and leaves nothing behind.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		secrets := watch.NewFakeWithChanSize(3, false)
		for range 3 {
			secrets.Add(&corev1.Secret{})
		}
		w := newGatewayWatch(secrets)
		if first := <-w.ResultChan(); first.Type != watch.Added {
			t.Errorf("the first event is %+v", first)
		} else if _, shown := first.Object.(*gatewayv1alpha1.ClusterGateway); !shown {
			t.Errorf("it shows a %T", first.Object)
		}
		synctest.Wait() // the next waits for somebody to take it
		w.Stop()
		w.Stop()
	}) // fails if a goroutine is left
}
