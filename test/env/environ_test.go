package env

import (
	"slices"
	"testing"
)

func TestEnviron(t *testing.T) {
	t.Setenv("GOGC", "50")
	t.Setenv("KUBECONFIG", "of-the-developer")
	environ := Environ("A=b")
	for variable, want := range map[string]bool{"GOGC=50": true, "A=b": true, "KUBECONFIG=of-the-developer": false} {
		if slices.Contains(environ, variable) != want {
			t.Errorf("%s: %t, expected %t", variable, !want, want)
		}
	}
}
