package campaign

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// silent are the controllers that write nothing in the scenario, each with the reason. No fault happens to them.
var silent = map[string]string{
	"addon-application-pull":             "the hub has not the kind Application of Argo CD",
	"addon-applicationset-report":        "the hub has not the kind Application of Argo CD",
	"addon-managedserviceaccount-report": "no agent reports tokens that could expire",
	"work-manifestwork-unattended":       "it gives an agent a minute, before it says what a deletion waits for",
}

// namedSink is where controllers log. It knows which one does: controller-runtime gives the context of a reconcile a logger with the name.
type namedSink struct {
	logr.LogSink
	controller string
}

func newLogger() logr.Logger { return logr.New(namedSink{LogSink: klog.Background().GetSink()}) }

// Init implements logr.LogSink. The sink is that of a logger, which has done it.
func (s namedSink) Init(logr.RuntimeInfo) {}

// WithName implements logr.LogSink.
func (s namedSink) WithName(name string) logr.LogSink {
	s.LogSink = s.LogSink.WithName(name)
	return s
}

// WithValues implements logr.LogSink.
func (s namedSink) WithValues(keysAndValues ...any) logr.LogSink {
	if at := slices.Index(keysAndValues, any("controller")); at >= 0 && at+1 < len(keysAndValues) {
		s.controller = fmt.Sprint(keysAndValues[at+1])
	}
	s.LogSink = s.LogSink.WithValues(keysAndValues...)
	return s
}

// controllerOf is the name of the controller whose reconcile a context is of; empty outside of reconciles.
func controllerOf(ctx context.Context) string {
	logger, err := logr.FromContext(ctx)
	if err != nil {
		return ""
	}
	sink, _ := logger.GetSink().(namedSink)
	return sink.controller
}

// controllersRunning are the names of the controllers that have been started in this process.
func controllersRunning() (names []string, err error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	for _, family := range families {
		if family.GetName() != "controller_runtime_max_concurrent_reconciles" {
			continue
		}
		for _, m := range family.GetMetric() {
			names = append(names, m.GetLabel()[0].GetValue())
		}
	}
	return names, nil
}

// checkWriters says which controllers that run write nothing in the scenario, without being known for that, and what is wrong about those
// that are.
func checkWriters(running []string, wrote map[string]bool, silent map[string]string) (problems []string) {
	for _, name := range running {
		switch _, known := silent[name]; {
		case !known && !wrote[name]:
			problems = append(problems, name+" writes nothing: extend the scenario, or say in silent why it does not")
		case known && wrote[name]:
			problems = append(problems, name+" writes: take it out of silent")
		}
	}
	for name := range silent {
		if !slices.Contains(running, name) {
			problems = append(problems, name+" does not run: take it out of silent")
		}
	}
	slices.Sort(problems)
	return problems
}
