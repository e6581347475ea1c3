package consistentclient

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// newStale returns a client whose cache never receives what was written.
func newStale() client.Client {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm"}}
	return newConsistentClient(interceptor.NewClient(fake.NewClientBuilder().WithObjects(cm).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if !(&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
				<-ctx.Done()
				return fmt.Errorf("wait: %w", ctx.Err())
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if !(&client.ListOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
				<-ctx.Done()
				return fmt.Errorf("wait: %w", ctx.Err())
			}
			return c.List(ctx, list, opts...)
		},
	}))
}

func reads(c client.Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"get": func(ctx context.Context) error {
			return c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "cm"}, &corev1.ConfigMap{})
		},
		"list": func(ctx context.Context) error {
			all := &corev1.ConfigMapList{}
			if err := c.List(ctx, all, client.InNamespace("default")); err != nil || len(all.Items) == 1 {
				return err
			}
			return fmt.Errorf("%d items", len(all.Items))
		},
	}
}

// A write that the cache never receives delays reads, but does not stop them.
func TestWritesTheCacheNeverReceives(t *testing.T) {
	t.Parallel()
	for name := range reads(newStale()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				read := reads(newStale())[name] // each test has a clock of its own
				for _, wait := range []time.Duration{readTimeout, 0, 0} {
					began := time.Now()
					if err := read(t.Context()); err != nil || time.Since(began) != wait {
						t.Errorf("after %s, want %s: %v", time.Since(began), wait, err)
					}
				}
				<-time.After(staleFor + 1)
				began := time.Now()
				if err := read(t.Context()); err != nil || time.Since(began) != readTimeout {
					t.Errorf("later: after %s, want %s: %v", time.Since(began), readTimeout, err)
				}
			})
		})
	}
}

// A caller whose context ends earlier gets no answer.
func TestReadsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	for name := range reads(newStale()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				read := reads(newStale())[name] // each test has a clock of its own
				ctx, cancel := context.WithTimeout(t.Context(), readTimeout/2)
				defer cancel()
				if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// unnamed fails when its kind is read.
type unnamed struct {
	corev1.ConfigMap
	t *testing.T
}

func (u *unnamed) GetObjectKind() schema.ObjectKind {
	u.t.Error("what is read is named")
	return u.ConfigMap.GetObjectKind()
}

// What is read is not named while the cache keeps up: that takes as long as the read. What was stale is forgotten.
func TestReadsOfACacheThatKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		instant := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return nil
			},
		})
		c := newConsistentClient(instant)
		read := func() {
			t.Helper()
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "cm"}, &unnamed{t: t}); err != nil {
				t.Error(err)
			}
		}
		read()
		c.over = time.Now().Add(staleFor)
		c.stale["another"] = c.over
		<-time.After(staleFor + 1)
		if read(); len(c.stale) > 0 {
			t.Errorf("kept: %v", c.stale)
		}
	})
}
