package apiclient

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Denied reports whether a request failed because a rule is missing: quotas, admission and namespaces that end forbid things, too. Of
// several requests, all have failed so.
func Denied(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(one error) bool { return !Denied(one) })
	}
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot ") && strings.Contains(err.Error(), " resource ")
}
