package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
)

// Annotated is an object with annotations.
func Annotated[T client.Object](o T, pairs ...string) T {
	annotations := map[string]string{}
	for key, value := range o.GetAnnotations() {
		annotations[key] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		annotations[pairs[i]] = pairs[i+1]
	}
	o.SetAnnotations(annotations)
	return o
}

// ExpectRefusal checks how the hub refused something: by an error of this kind that names all of the texts.
func ExpectRefusal(t *testing.T, err error, kind func(error) bool, texts ...string) {
	t.Helper()
	if !kind(err) {
		t.Errorf("got error %v", err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error is %q, want it to contain %q", err, text)
		}
	}
}

// MergePatch patches an object by a merge patch in JSON.
func MergePatch(t *testing.T, c client.Client, o client.Object, patch string) {
	t.Helper()
	if err := c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// Merge is a merge patch in JSON.
func Merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// Namespace makes a namespace, unless there is one of that name, and returns the name.
func Namespace(t *testing.T, c client.Client, name string) string {
	t.Helper()
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return name
}

// Create makes objects, and waits until the rights that they grant are in effect.
func Create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range objects {
		awaitGranted(t, c, o)
	}
}

// AwaitGone waits until an object does not exist any more.
func AwaitGone(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("%T %s is still there", o, o.GetName())
	})
}

// AwaitEvent waits until a namespace has an event with the reason.
func AwaitEvent(t *testing.T, c client.Client, namespace, reason string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := c.List(ctx, events, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no event %s among %d in namespace %s", reason, len(events.Items), namespace)
	})
}

// Get reads an object.
func Get(t *testing.T, c client.Client, key client.ObjectKey, into client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), key, into); err != nil {
		t.Fatal(err)
	}
}

// AwaitObject waits until an object is as the check wants it.
func AwaitObject[T client.Object](t *testing.T, c client.Client, o T, check func(T) error) T {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return check(o)
	})
	return o
}
