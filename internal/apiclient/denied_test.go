package apiclient

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// KL-32 MS-04: a right is missing only if that is why all of several requests have failed, so that no other failure is passed over.
func TestDenied(t *testing.T) {
	t.Parallel()
	forbidden := func(why string) error {
		return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "ci", errors.New(why))
	}
	denied, quota := forbidden(`User "a" cannot delete resource "serviceaccounts"`), forbidden("exceeded quota")
	cut := errors.New("connection refused")
	joined := func(failures ...error) error { return fmt.Errorf("remove: %w", errors.Join(failures...)) }
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"none":                  {nil, false},
		"denied":                {denied, true},
		"wrapped":               {fmt.Errorf("delete: %w", denied), true},
		"a quota":               {quota, false},
		"another failure":       {cut, false},
		"all denied":            {joined(denied, nil, joined(denied, denied)), true},
		"denied, then cut":      {joined(denied, cut), false},
		"cut, then denied":      {joined(cut, denied), false},
		"one of those of one":   {joined(denied, joined(denied, cut)), false},
		"denied, and a quota":   {joined(denied, quota), false},
		"none of several fails": {errors.Join(nil, nil), false},
	} {
		if got := Denied(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
