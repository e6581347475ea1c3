package cloudevents

import (
	"encoding/json"
	"maps"
	"strings"
)

// logTracingPrefix begins the annotations by which a change is followed through the logs of all who have a part in it.
const logTracingPrefix = "logging.open-cluster-management.io/"

// SetLogTracing passes on the annotations of a resource that trace a change through logs, if it has any.
func (e *Event) SetLogTracing(annotations map[string]string) error {
	tracing := maps.Clone(annotations)
	maps.DeleteFunc(tracing, func(key, _ string) bool { return !strings.HasPrefix(key, logTracingPrefix) })
	if len(tracing) == 0 {
		return nil
	}
	data, err := json.Marshal(tracing)
	if err != nil {
		return err
	}
	e.Extensions[ExtensionLogTracing] = string(data)
	return nil
}
