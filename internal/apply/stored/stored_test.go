package stored

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CM-26: only what the API server says of stored versions is a reason to migrate before the definition is applied.
func TestIsRefused(t *testing.T) {
	t.Parallel()
	invalid := func(paths ...*field.Path) error {
		var all field.ErrorList
		for _, path := range paths {
			all = append(all, field.Invalid(path, "v1beta1", "must appear in spec.versions"))
		}
		return fmt.Errorf("apply: %w", apierrors.NewInvalid(schema.GroupKind{Kind: "CustomResourceDefinition"}, "sets.example.com", all))
	}
	versionsStored, versions := field.NewPath("status", "storedVersions").Index(0), field.NewPath("spec", "versions")
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"stored":            {invalid(versionsStored), true},
		"stored and others": {invalid(versions, versionsStored), true},
		"joined":            {errors.Join(invalid(versionsStored)), true},
		"others":            {invalid(versions), false},
		"conflict":          {apierrors.NewConflict(schema.GroupResource{}, "a", nil), false},
		"another error":     {errors.New("status.storedVersions"), false},
		"none":              {nil, false},
	} {
		if got := isRefused(test.err); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
