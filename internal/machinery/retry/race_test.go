package retry

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A write that another one got ahead of is repeated, whether that created or changed the object; one that fails otherwise is not.
func TestOnRace(t *testing.T) {
	t.Parallel()
	failed := errors.New("no luck")
	results := []error{apierrors.NewAlreadyExists(schema.GroupResource{Resource: "things"}, "a"), conflict, failed, nil}
	calls := 0
	err := OnRace(func() error {
		calls++
		return results[calls-1]
	})
	if calls != 3 || !errors.Is(err, failed) {
		t.Errorf("%d calls, %v", calls, err)
	}
}
