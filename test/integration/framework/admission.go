package framework

import (
	"strings"
	"testing"
)

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
