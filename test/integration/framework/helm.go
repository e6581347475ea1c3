package framework

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads an object.
func Get(t *testing.T, c client.Client, key client.ObjectKey, into client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), key, into); err != nil {
		t.Fatal(err)
	}
}
