package framework

import (
	"testing"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follow watches objects in a namespace until the test ends.
func Follow(t *testing.T, c client.WithWatch, list client.ObjectList, namespace string) <-chan watch.Event {
	t.Helper()
	w, err := c.Watch(t.Context(), list, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w.ResultChan()
}
