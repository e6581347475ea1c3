package selected_test

import (
	"errors"
	"testing"

	"github.com/capstan-io/capstan/internal/hub/selected"
)

// The error of many clusters always names the same one, or each retry would look like news.
func TestAsError(t *testing.T) {
	t.Parallel()
	if err := (selected.Errors{}).AsError("work"); err != nil {
		t.Errorf("without errors: %v", err)
	}
	refused := errors.New("refused c1")
	failed := selected.Errors{"c3": errors.New("refused c3"), "c1": refused, "c2": errors.New("refused c2")}
	for range 20 {
		err := failed.AsError("work")
		if want := "3 works could not be written, the first for cluster c1: refused c1"; err.Error() != want {
			t.Fatalf("got %q, want %q", err, want)
		}
		for cluster, one := range failed {
			if !errors.Is(err, one) {
				t.Errorf("the error of %s is not in it", cluster)
			}
		}
	}
	if got, want := (selected.Errors{"c1": refused}).AsError("work").Error(),
		"1 work could not be written, the first for cluster c1: refused c1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
