package apply

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// controllerName is what lines of the log have as the controller.
	controllerName = "work-manifestwork-apply"
	// loggedAnnotations is how many annotations of a work are in each line of the log about it, the first by name.
	loggedAnnotations = 16
	// loggedBytes is how much of the value of one is.
	loggedBytes = 256
)

// loggerFor returns the function that makes the logger of a reconcile. Whoever writes a work chooses, by its annotations with the prefix
// fleet.AnnotationLoggingPrefix, what is in the lines about it. What the agent itself says comes after that, so that it is what counts.
func (c *Controller) loggerFor(base logr.Logger) func(*reconcile.Request) logr.Logger {
	return func(req *reconcile.Request) logr.Logger {
		if req == nil {
			return base.WithValues("controller", controllerName)
		}
		work := &workv1.ManifestWork{}
		// The reconcile reads the work, too, and reports it if that fails.
		if err := c.hub.Get(context.Background(), req.NamespacedName, work); err != nil {
			work.Annotations = nil
		}
		return base.WithValues(loggedOf(work.Annotations)...).
			WithValues("controller", controllerName, "namespace", req.Namespace, "name", req.Name)
	}
}

// loggedOf are the keys, without the prefix, and values of the annotations that are to be in the log.
func loggedOf(annotations map[string]string) (keysAndValues []any) {
	for _, annotation := range slices.Sorted(maps.Keys(annotations)) {
		key, logged := strings.CutPrefix(annotation, fleet.AnnotationLoggingPrefix)
		if !logged || len(keysAndValues) == 2*loggedAnnotations {
			continue
		}
		value := annotations[annotation]
		if len(value) > loggedBytes {
			value = strings.ToValidUTF8(value[:loggedBytes], "") + "…"
		}
		keysAndValues = append(keysAndValues, key, value)
	}
	return keysAndValues
}
