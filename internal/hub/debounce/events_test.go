package debounce_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/hub/debounce"
)

type (
	queue     = workqueue.TypedRateLimitingInterface[reconcile.Request]
	happening func(context.Context, handler.EventHandler, queue)
)

const during = 50 * time.Millisecond

// What is found by labels is listed as it was, too; what is found by a name is not listed twice. Many events are one.
func TestGather(t *testing.T) {
	t.Parallel()
	object := func(of string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "object", Labels: map[string]string{"of": of}}}
	}
	created := func(of string) happening {
		return func(ctx context.Context, h handler.EventHandler, q queue) {
			h.Create(ctx, event.CreateEvent{Object: object(of)}, q)
		}
	}
	deleted := func(ctx context.Context, h handler.EventHandler, q queue) {
		h.Delete(ctx, event.DeleteEvent{Object: object("a")}, q)
	}
	generic := func(ctx context.Context, h handler.EventHandler, q queue) {
		h.Generic(ctx, event.GenericEvent{Object: object("a")}, q)
	}
	updated := func(before, after string) happening {
		return func(ctx context.Context, h handler.EventHandler, q queue) {
			h.Update(ctx, event.UpdateEvent{ObjectOld: object(before), ObjectNew: object(after)}, q)
		}
	}
	for name, test := range map[string]struct {
		by     func(time.Duration, handler.MapFunc) handler.EventHandler
		happen happening
		lists  []string
	}{
		"created, by name":                {debounce.ByName, created("a"), []string{"a"}},
		"created, by labels":              {debounce.ByLabels, created("a"), []string{"a"}},
		"deleted, by name":                {debounce.ByName, deleted, []string{"a"}},
		"deleted, by labels":              {debounce.ByLabels, deleted, []string{"a"}},
		"another event, by name":          {debounce.ByName, generic, []string{"a"}},
		"another event, by labels":        {debounce.ByLabels, generic, []string{"a"}},
		"labels change, by name":          {debounce.ByName, updated("a", "b"), []string{"b"}},
		"labels change, by labels":        {debounce.ByLabels, updated("a", "b"), []string{"b", "a"}},
		"something else, with the labels": {debounce.ByLabels, updated("a", "a"), []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				defer synctest.Wait()
				defer q.ShutDown()
				var lists []string
				h := test.by(during, func(_ context.Context, o client.Object) []reconcile.Request {
					lists = append(lists, o.GetLabels()["of"])
					return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetLabels()["of"]}}}
				})
				began := time.Now()
				if test.happen(t.Context(), h, q); !slices.Equal(lists, test.lists) {
					t.Fatalf("looked for %v, want %v", lists, test.lists)
				}
				test.happen(t.Context(), h, q) // and again
				var reconciled []string
				for range test.lists {
					request, _ := q.Get()
					reconciled = append(reconciled, request.Name)
					q.Done(request)
				}
				slices.Sort(reconciled)
				slices.Sort(lists)
				if !slices.Equal(reconciled, slices.Compact(lists)) || q.Len() > 0 || time.Since(began) != during {
					t.Errorf("asked for %v and %d more after %v", reconciled, q.Len(), time.Since(began))
				}
			})
		})
	}
}
