package selected

import (
	"fmt"
	"maps"
	"slices"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Errors are the errors of the clusters that could not be written to, by the name of the cluster.
type Errors map[string]error

// AsError returns one error for all of them, nil if there are none. It says how many objects of a kind could not be written, and wraps the
// error of the first cluster in the order of names: a retry that fails in the same way has the same message. Kind is singular.
func (e Errors) AsError(kind string) error {
	if len(e) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(e)))
	return fmt.Errorf("%s could not be written, the first for cluster %s: %w", text.Count(len(e), kind), first, e[first])
}
