package framework

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
)

// Follow tells of what happens to objects in a namespace, until the test ends.
func Follow(t *testing.T, c client.WithWatch, list client.ObjectList, namespace string) <-chan watch.Event {
	t.Helper()
	w, err := c.Watch(t.Context(), list, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w.ResultChan()
}

// AwaitEnd waits until a watch is over.
func AwaitEnd(t *testing.T, events <-chan watch.Event) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		case <-deadline:
			t.Fatal("the watch goes on")
		}
	}
}

// AwaitWatched waits until a watch tells of an object of that name.
func AwaitWatched(t *testing.T, events watch.Interface, kind watch.EventType, name string) {
	t.Helper()
	for event := range env.Events(t, events) {
		if o, err := meta.Accessor(event.Object); err == nil && event.Type == kind && o.GetName() == name {
			return
		}
	}
	t.Fatalf("the watch ended before %s %s", kind, name)
}
