package selected

import (
	"fmt"
	"maps"
	"slices"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Errors are the errors of the clusters that could not be written to, by the name of the cluster.
type Errors map[string]error

// AsError returns one error for all of them, nil if there are none. It wraps all, and says how many objects of a kind could not be written,
// and why not that of the first cluster in the order of names: a retry that fails in the same way has the same message. Kind is singular.
func (e Errors) AsError(kind string) error {
	if len(e) == 0 {
		return nil
	}
	var all []error
	clusters := slices.Sorted(maps.Keys(e))
	for _, cluster := range clusters {
		all = append(all, e[cluster])
	}
	message := fmt.Sprintf("%s could not be written, the first for cluster %s: %v", text.Count(len(e), kind), clusters[0], all[0])
	return &clustersError{all, message}
}

// clustersError is the error of several clusters.
type clustersError struct {
	all     []error
	message string
}

// Error implements error.
func (e *clustersError) Error() string { return e.message }

// Unwrap returns the errors of all clusters.
func (e *clustersError) Unwrap() []error { return e.all }
